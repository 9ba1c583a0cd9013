"""Several heads from scalar answers: recovered, or an honest other status."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import unsoftmax
from tests.cases.multi_heads import KINDS, gaussian
from unsoftmax import MultiHead, MultiHeadLearner, SingleHead, Size, Status, random_multi_head

Array = NDArray[np.float64]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_recovered_up_to_their_canonical_form(kind: str, seed: int) -> None:
    hidden = KINDS[kind](9 if kind == "more_heads_than_columns" else 12, seed)
    result = unsoftmax.recover(lambda X: hidden(X), width=hidden.width, seed=seed)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, MultiHead)
    assert len(result.model.heads) == len(hidden.canonical().heads)
    error = hidden.canonical().distance(result.model)
    assert result.error_bound is not None
    assert error <= 1e-8
    assert error <= result.error_bound


@pytest.mark.parametrize(
    ("d", "heads", "r", "limit"), [(48, 8, 48, 1.06), (64, 8, 8, 1.25), (48, 4, 12, 1.15)]
)
def test_the_bill_is_near_the_number_of_parameters(d: int, heads: int, r: int, limit: float) -> None:
    hidden = random_multi_head(d, heads, r, seed=1)
    result = unsoftmax.recover(lambda X: hidden(X), width=d)
    assert result.status is Status.EXACT
    assert result.queries.learning <= limit * hidden.parameters
    assert result.queries.learning <= 1.1 * MultiHeadLearner().claim.queries.expected(Size.of(hidden))
    assert result.model is not None
    assert result.model.ranks == [r] * heads


def test_round_trips_do_not_grow_with_the_number_of_heads() -> None:
    trips = []
    for heads in (2, 8):
        hidden = random_multi_head(24, heads, 3, seed=0)
        calls = [0]

        def oracle(X: Array, hidden: MultiHead = hidden, calls: list[int] = calls) -> Array:
            calls[0] += 1
            return hidden(X)

        assert unsoftmax.recover(oracle, width=24).status is Status.EXACT
        trips.append(calls[0])
    assert trips[1] < 2 * trips[0]


def test_one_head_stays_one_head_at_its_own_price() -> None:
    head = unsoftmax.random_single_head(32, seed=3)
    result = unsoftmax.recover(lambda X: head(X), width=32)
    assert isinstance(result.model, SingleHead)
    assert result.queries.learning <= 1.06 * head.parameters


def test_a_single_head_is_also_a_sum_of_heads() -> None:
    head = unsoftmax.random_single_head(10, seed=3)
    result = unsoftmax.recover(lambda X: head(X), width=10, family="multi-head")
    assert result.status is Status.EXACT
    assert isinstance(result.model, MultiHead)
    assert MultiHead([head]).distance(result.model) < 1e-9


@pytest.mark.parametrize(("d", "share"), [(10, 1.0), (10, 0.5), (40, 1.0)])
def test_mirrored_heads_are_found_or_left_unresolved(d: int, share: float) -> None:
    """Two rows never show W and -W with one v; copies of a row do, and are too many for wide heads."""
    rng = np.random.default_rng(0)
    W, v = gaussian(rng, d), rng.standard_normal(d)
    hidden = MultiHead(
        [SingleHead(W, v), SingleHead(-W, share * v), SingleHead(gaussian(rng, d), rng.standard_normal(d))]
    )
    result = unsoftmax.recover(lambda X: hidden(X), width=d)
    assert result.status is (Status.EXACT if d == 10 else Status.UNRESOLVED), result.reason
    if result.model is not None:
        assert isinstance(result.model, MultiHead)
        assert hidden.distance(result.model) < 1e-8


@pytest.mark.parametrize("d", [1, 3, 6])
def test_mirrored_heads_alone_are_found(d: int) -> None:
    """With one readout, W and -W are half on whatever the asking row is."""
    rng = np.random.default_rng(1)
    W, v = gaussian(rng, d), rng.standard_normal(d)
    hidden = MultiHead([SingleHead(W, v), SingleHead(-W, v)])
    result = unsoftmax.recover(lambda X: hidden(X), width=d)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


def _close(distance: float, d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([31, seed])
    W, E = gaussian(rng, d), gaussian(rng, d)
    near = W + distance * np.linalg.norm(W) / np.linalg.norm(E) * E
    return MultiHead([SingleHead(matrix, rng.standard_normal(d)) for matrix in (W, near, gaussian(rng, d))])


@pytest.mark.parametrize("distance", [1e-5, 1e-6])
def test_heads_as_close_as_one_millionth_are_told_apart(distance: float) -> None:
    hidden = _close(distance, 10, 0)
    result = unsoftmax.recover(lambda X: hidden(X), width=10)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, MultiHead)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= min(1e-9, result.error_bound)
    assert result.queries.learning <= 8 * hidden.parameters


@pytest.mark.parametrize("distance", [1e-7, 1e-9])
def test_closer_heads_are_reported_and_not_guessed(distance: float) -> None:
    hidden = _close(distance, 10, 0)
    result = unsoftmax.recover(lambda X: hidden(X), width=10)
    assert result.status is Status.UNRESOLVED, result.reason


def test_an_averaging_head_does_not_turn_the_others_around() -> None:
    hidden = KINDS["one_averages"](12, 5)
    result = unsoftmax.recover(lambda X: hidden(X), width=12)
    assert result.status is Status.EXACT
    assert result.queries.learning <= 1.6 * hidden.parameters


def test_float32_answers_end_within_an_honest_bound() -> None:
    hidden = random_multi_head(16, 3, seed=2)
    result = unsoftmax.recover(lambda X: hidden(X).astype(np.float32), width=16, family="multi-head")
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, MultiHead)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound < 1e-2


def _two_layers(hidden: MultiHead) -> unsoftmax.FunctionOracle:
    def box(X: Array) -> Array:
        mixed = X + np.stack([hidden(X[:, : i + 1]) for i in range(X.shape[1])], axis=1)[:, :, None]
        return hidden(mixed)

    return unsoftmax.FunctionOracle(box, unsoftmax.OracleSpec(width=hidden.width))


def _length_scale(hidden: MultiHead) -> unsoftmax.FunctionOracle:
    return unsoftmax.FunctionOracle(
        lambda X: hidden(X) * (1 + 0.01 * (X.shape[1] > 4)), unsoftmax.OracleSpec(width=hidden.width)
    )


def _hard_max(hidden: MultiHead) -> unsoftmax.FunctionOracle:
    def box(X: Array) -> Array:
        scores = hidden.scores(X)
        return np.asarray(
            sum(
                np.take_along_axis(X, scores[:, :, h].argmax(1)[:, None, None], 1)[:, 0] @ head.v
                for h, head in enumerate(hidden.heads)
            )
        )

    return unsoftmax.FunctionOracle(box, unsoftmax.OracleSpec(width=hidden.width))


@pytest.mark.parametrize("family", ["auto", "multi-head"])
@pytest.mark.parametrize("make", [_two_layers, _length_scale, _hard_max])
def test_boxes_that_are_no_sum_of_heads_are_refused_at_a_bounded_price(make: object, family: str) -> None:
    assert callable(make)
    result = unsoftmax.recover(make(random_multi_head(8, 2, seed=4)), family=family)
    assert result.status in (Status.OUTSIDE_CLASS, Status.UNRESOLVED), result.reason
    assert result.queries.total < 40_000


def test_inputs_too_small_to_saturate_give_what_rounding_leaves() -> None:
    hidden = random_multi_head(8, 2, seed=1, scale=0.01)
    result = unsoftmax.recover(lambda X: hidden(X), width=8, input_bound=1.0, family="multi-head")
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0) <= 1e-4


def test_scores_that_rounding_hides_end_as_unresolved() -> None:
    hidden = random_multi_head(8, 2, seed=1, scale=0.0001)
    result = unsoftmax.recover(lambda X: hidden(X), width=8, input_bound=1.0, family="multi-head")
    assert result.status is Status.UNRESOLVED
    assert "rows may be 1 long, and then no score is above" in result.reason
    assert "input_bound" in result.reason


@pytest.mark.parametrize("outputs", [None, 4])
@pytest.mark.parametrize("bound", [0.1, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_heads_inside_a_limit_are_bounded_by_rounding(outputs: int | None, bound: float, seed: int) -> None:
    hidden = random_multi_head(4, 2, seed=seed, outputs=outputs, biases=seed == 1)
    result = unsoftmax.recover(lambda X: hidden(X), width=4, outputs=outputs, input_bound=bound, seed=seed)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


def test_the_budget_is_kept() -> None:
    result = unsoftmax.recover("demo:multi-head?d=24&heads=3", budget=500)
    assert result.status is Status.BUDGET_SPENT
    assert result.queries.total <= 500


def test_the_same_seed_asks_the_same_queries() -> None:
    hidden = random_multi_head(10, 2, seed=1)
    logs: list[list[bytes]] = []
    for _ in range(2):
        log: list[bytes] = []

        def oracle(X: Array, log: list[bytes] = log) -> Array:
            log.append(np.asarray(X).tobytes())
            return hidden(X)

        unsoftmax.recover(oracle, width=10, seed=5)
        logs.append(log)
    assert logs[0] == logs[1]
