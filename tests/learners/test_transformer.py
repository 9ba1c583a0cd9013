"""Transformers end to end: kinds × sizes × seeds, the family found by itself, both meters, and boxes that are
none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from tests.cases.networks import no_linear_part
from tests.cases.outside_networks import BOXES
from unsoftmax import (
    ReluNetwork,
    SingleHead,
    Size,
    Status,
    Transformer,
    TransformerLearner,
    UsageError,
    random_transformer,
)


def _silent(d: int, m: int, seed: int) -> Transformer:
    return Transformer(
        random_transformer(d, 1, seed=seed).W, no_linear_part(d, m, np.random.default_rng([5, seed]), False)
    )


def _query_bias(d: int, m: int, seed: int) -> Transformer:
    model = random_transformer(d, m, seed=seed, biases=True)
    return Transformer(model.W, model.network, np.random.default_rng(seed).standard_normal(d))


KINDS: dict[str, Callable[[int, int, int], Transformer]] = {
    "plain": lambda d, m, seed: random_transformer(d, m, seed=seed),
    "biases": lambda d, m, seed: random_transformer(d, m, seed=seed, biases=True),
    "silent": _silent,
    "low rank": lambda d, m, seed: random_transformer(d, m, 2, seed=seed),
    "W times 20": lambda d, m, seed: random_transformer(d, m, seed=seed, scale=20.0, biases=True),
    "W over 1000": lambda d, m, seed: random_transformer(d, m, seed=seed, scale=1e-3, biases=True),
    "residual": lambda d, m, seed: random_transformer(d, m, seed=seed, residual=1.0),
    "odd residual": lambda d, m, seed: random_transformer(d, m, seed=seed, residual=0.37, biases=True),
    "query bias": _query_bias,
    "no scores": lambda d, m, seed: Transformer(
        np.zeros((d, d)), random_transformer(d, m, seed=seed).network
    ),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("d", "m"), [(4, 6), (12, 12)])
def test_transformers_are_recognised_and_recovered(kind: str, d: int, m: int) -> None:
    for seed in range(2):
        hidden = KINDS[kind](d, m, seed)
        result = unsoftmax.recover(lambda X, hidden=hidden: hidden(X), width=d, seed=seed)
        assert result.status is Status.EXACT, result.reason
        assert result.family == "transformer"
        assert isinstance(result.model, Transformer)
        assert hidden.distance(result.model) <= 1e-7
        assert result.error_bound is not None
        assert hidden.distance(result.model) <= result.error_bound
        assert result.model.ranks == hidden.ranks
        batch = np.random.default_rng(3).standard_normal((50, 5, d))
        assert np.abs(hidden(batch) - result.model(batch)).max() <= 1e-7 * np.abs(hidden(batch)).max()


def test_the_price_at_width_64() -> None:
    for rank, biases in ((64, False), (64, True), (8, True)):
        hidden = random_transformer(64, 64, rank, seed=1, biases=biases)
        result = unsoftmax.recover(hidden)
        assert result.status is Status.EXACT, result.reason
        assert result.queries.total <= 1.15 * hidden.parameters


@pytest.mark.parametrize("biases", [False, True])
def test_the_family_is_recognised_before_a_readout_is_paid_for(biases: bool) -> None:
    result = unsoftmax.recover(random_transformer(24, 8, seed=3, biases=biases))
    assert result.status is Status.EXACT, result.reason
    assert result.queries.by_phase["identify"] <= 13
    assert result.queries.by_phase.get("values", 0) <= 1
    assert [(finding.subject, finding.value) for finding in result.findings] == [("answers", "exact")]


def test_low_rank_attention_costs_its_degrees_of_freedom() -> None:
    d, r = 32, 3
    hidden = random_transformer(d, 6, r, seed=2)
    result = unsoftmax.recover(hidden, learner=TransformerLearner())
    measurements = r * (2 * d - r)
    assert measurements <= result.queries.by_phase["scores"] <= measurements + d + d + 60
    queries = TransformerLearner().claim.queries
    assert queries.holds(result.queries.learning, Size.of(hidden))
    assert result.queries.learning <= 1.2 * queries.expected(Size.of(hidden))


@pytest.mark.parametrize("r", [None, 2])
def test_the_antisymmetric_pair_takes_two_queries_a_measurement(r: int | None) -> None:
    hidden = random_transformer(12, 10, r, seed=1)
    result = unsoftmax.recover(hidden, learner=TransformerLearner(meter="antisymmetric"))
    assert result.status is Status.EXACT, result.reason
    assert hidden.distance(result.unwrap()) < 1e-7  # type: ignore[arg-type]
    rank = hidden.rank
    assert result.queries.by_phase["scores"] >= 2 * rank * (24 - rank)


def test_the_antisymmetric_pair_says_why_it_cannot() -> None:
    for model, words in (
        (_silent(6, 6, 1), "Aᵀu = 0"),
        (random_transformer(6, 6, seed=1, biases=True), "biases"),
    ):
        result = unsoftmax.recover(model, learner=TransformerLearner(meter="antisymmetric"))
        assert result.status is Status.UNRESOLVED
        assert words in result.reason
    with pytest.raises(UsageError, match="meter"):
        TransformerLearner(meter="both")  # type: ignore[arg-type]


def test_a_linear_network_is_a_single_head() -> None:
    model = random_transformer(5, 4, seed=2)
    linear = Transformer(
        model.W, ReluNetwork([[1.0, 2.0, 0.0, 1.0, 1.0], [-1.0, -2.0, 0.0, -1.0, -1.0]], [1.5, -1.5])
    )
    found = unsoftmax.recover(linear)
    assert found.status is Status.EXACT, found.reason
    assert isinstance(found.model, SingleHead)
    asked = unsoftmax.recover(linear, family="transformer")
    assert isinstance(asked.model, SingleHead)
    assert "the network is linear" in asked.reason


def test_a_clipped_head_is_a_transformer_with_two_neurons() -> None:
    head = unsoftmax.random_single_head(6, seed=3)
    result = unsoftmax.recover(lambda X: np.clip(head(X), -2.0, 2.0), width=6, learner=TransformerLearner())
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, Transformer)
    assert result.model.network.folds.count == 2
    assert np.linalg.norm(result.model.W - head.W) <= 1e-7 * np.linalg.norm(head.W)


def test_a_network_alone_is_recognised() -> None:
    network = unsoftmax.random_relu_network(5, 6, seed=1, biases=True)
    result = unsoftmax.recover(network)
    assert result.status is Status.EXACT, result.reason
    assert result.family == "relu-network"


def test_bounded_rows_without_biases() -> None:
    hidden = random_transformer(6, 6, seed=4)
    result = unsoftmax.recover(
        unsoftmax.BoundedInputs(unsoftmax.FunctionOracle(hidden, unsoftmax.OracleSpec(width=6)), 3.0)
    )
    assert result.status is Status.EXACT, result.reason


@pytest.mark.parametrize("residual", [3e-7, 1.0 - 2e-8])
def test_a_skip_connection_that_is_nearly_a_usual_one_is_not_taken_for_it(residual: float) -> None:
    for seed in (1, 2):
        hidden = random_transformer(5, 6, seed=seed, biases=True, residual=residual)
        result = unsoftmax.recover(hidden, seed=seed)
        assert result.status is Status.EXACT, result.reason
        found = result.unwrap()
        assert isinstance(found, Transformer)
        assert hidden.distance(found) <= (result.error_bound or 0.0) < 1e-9


def test_the_demo_target() -> None:
    result = unsoftmax.recover("demo:transformer?d=6&m=9&r=2&biases=1&seed=3")
    assert result.status is Status.EXACT, result.reason
    assert result.model is not None
    assert result.model.ranks == [2]


@pytest.mark.parametrize("name", sorted(BOXES))
@pytest.mark.parametrize("d", [2, 7])
def test_a_box_that_only_looks_like_one_is_never_a_success(name: str, d: int) -> None:
    result = unsoftmax.recover(BOXES[name](d, 1), width=d, seed=1)
    assert not result.status.recovered, result.reason
    if name not in ("rounded_answers", "noisy_answers", "float32_answers"):
        assert result.status is Status.OUTSIDE_CLASS, result.reason
        assert "failed the test '" in result.reason
