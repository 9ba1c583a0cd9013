"""Targets that answer with probabilities: the model of their logits is recovered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import distance
from unsoftmax import OracleFault, Status
from unsoftmax.arrays import Array
from unsoftmax.models import MultiHead, SingleHead

Link = Callable[[Array], Array]


def sigmoid(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-values)))


def softmax(values: Array) -> Array:
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def attention(d: int, outputs: int, seed: int) -> Link:
    """Two heads with vector answers, by plain numpy."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((2, d, d)) / np.sqrt(d)
    V, c = rng.standard_normal((2, d, outputs)) / np.sqrt(d), rng.standard_normal(outputs)

    def logits(X: Array) -> Array:
        scores = np.einsum("bnd,hde,be->hbn", X, W, X[:, -1])
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return np.asarray(np.einsum("hbn,bnd,hdm->bm", weights, X, V) + c)

    return logits


@pytest.mark.parametrize(("d", "constant"), [(3, 0.0), (6, 1.5), (10, -2.0)])
def test_one_head_behind_a_sigmoid_is_exact(d: int, constant: float) -> None:
    plain = unsoftmax.random_single_head(d, seed=d)
    head = SingleHead(plain.W, plain.v, None, constant)
    result = unsoftmax.recover(lambda X: sigmoid(head(X)), width=d, probabilities=True)
    assert result.status is Status.EXACT, result.reason
    assert distance(head, result.unwrap()) < 1e-11


def test_several_heads_behind_a_sigmoid_are_exact() -> None:
    heads = unsoftmax.random_multi_head(6, heads=2, seed=4)
    result = unsoftmax.recover(lambda X: sigmoid(heads(X)), width=6, probabilities=True)
    assert result.status is Status.EXACT, result.reason
    found = result.unwrap()
    assert isinstance(found, MultiHead)
    assert heads.distance(found) < 1e-10


@pytest.mark.parametrize("link", [softmax, sigmoid])
def test_classifiers_are_exact_up_to_what_the_link_hides(link: Link) -> None:
    logits = attention(5, 4, seed=2)
    result = unsoftmax.recover(lambda X: link(logits(X)), width=5, probabilities=True)
    assert result.status is Status.EXACT, result.reason
    X = np.random.default_rng(9).standard_normal((40, 7, 5))
    wanted = logits(X)
    if link is softmax:
        wanted = wanted - wanted.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(result.unwrap()(X), wanted, atol=1e-10)


def _short(head: SingleHead) -> Link:
    return lambda X: sigmoid(head(X).astype(np.float32)).astype(np.float32)


def test_probabilities_in_float32_give_an_honest_bound() -> None:
    for seed in range(4):
        head = unsoftmax.random_single_head(6, seed=seed)
        result = unsoftmax.recover(_short(head), width=6, probabilities=True)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-2


@pytest.mark.parametrize(("decimals", "recovered"), [(4, False), (6, True)])
def test_probabilities_of_few_decimals_give_an_honest_bound(decimals: int, recovered: bool) -> None:
    for seed in range(4):
        head = unsoftmax.random_single_head(6, seed=seed)
        result = unsoftmax.recover(
            lambda X, head=head: np.round(sigmoid(head(X)), decimals), width=6, probabilities=True
        )
        assert result.status is (Status.WITHIN_BOUND if recovered else Status.UNRESOLVED), result.reason
        if recovered:
            assert distance(head, result.unwrap()) <= (result.error_bound or 0.0)


def test_another_head_for_longer_sequences_is_seen_through_a_sigmoid() -> None:
    head = unsoftmax.random_single_head(5, seed=1)
    other = SingleHead(1.01 * head.W, head.v)

    def box(X: Array) -> Array:
        return sigmoid(head(X) if X.shape[1] < 4 else other(X))

    result = unsoftmax.recover(box, width=5, probabilities=True)
    assert not result.status.recovered


def test_a_factor_that_all_probabilities_share_is_seen() -> None:
    """It shows in no logit of a softmax, whose probabilities add up to 1."""
    logits = attention(4, 3, seed=1)

    def box(X: Array) -> Array:
        return np.asarray(softmax(logits(X)) * (1.0 - 1e-6 * (X.shape[1] > 4)))

    with pytest.raises(OracleFault, match="which rounding does not explain"):
        unsoftmax.recover(box, width=4, probabilities=True)


def test_two_sigmoids_of_one_half_are_no_softmax() -> None:
    """Rows of zeros are answered (0.5, 0.5) where there is no constant."""
    heads = unsoftmax.random_multi_head(4, 1, outputs=2, seed=0)
    result = unsoftmax.recover(lambda X: sigmoid(heads(X)), width=4, probabilities=True)
    assert result.status is Status.EXACT, result.reason


def test_who_does_not_say_so_is_told() -> None:
    head = unsoftmax.random_single_head(5, seed=1)
    result = unsoftmax.recover(lambda X: sigmoid(head(X)), width=5)
    assert not result.status.recovered
    assert "pass probabilities" in result.advice


def test_answers_that_are_none_are_refused() -> None:
    head = unsoftmax.random_single_head(4, seed=1)
    with pytest.raises(OracleFault, match="is not a probability; leave out probabilities"):
        unsoftmax.recover(head, width=4, probabilities=True)


def test_a_ledger_goes_on_behind_probabilities(tmp_path: Path) -> None:
    head = unsoftmax.random_single_head(4, seed=3)
    asked: list[int] = []

    def box(X: Array) -> Array:
        asked.append(len(X))
        return sigmoid(head(X))

    def run(budget: int | None) -> unsoftmax.Result:
        return unsoftmax.recover(
            box, width=4, probabilities=True, ledger=tmp_path / "p.ledger", budget=budget
        )

    assert run(60).status is Status.BUDGET_SPENT
    first = sum(asked)
    whole = run(None)
    assert whole.status is Status.EXACT
    looks = whole.queries.by_phase["norm of rows"]
    assert sum(asked) == whole.queries.total + looks <= first + whole.queries.total


@pytest.mark.parametrize("link", [softmax, sigmoid])
def test_check_sees_what_the_probabilities_come_from(link: Link) -> None:
    logits = attention(4, 3, seed=5)
    found = unsoftmax.check(lambda X: link(logits(X)), width=4, name="box:target")
    assert found.recoverable, found.obstacle
    assert found.command == "unsoftmax recover box:target --width 4 --outputs 3 --probabilities"
    assert unsoftmax.recover(
        lambda X: link(logits(X)), width=4, outputs=3, probabilities=True
    ).status.recovered


def test_check_does_not_take_any_number_between_0_and_1_for_a_probability() -> None:
    head = unsoftmax.random_single_head(4, seed=1)
    assert not unsoftmax.check(lambda X: 0.5 + 0.3 * np.sin(head(X)), width=4).recoverable


@pytest.mark.parametrize("told", [False, True])
def test_vectors_told_in_few_decimals_are_refused_by_that_name(told: bool) -> None:
    """A softmax over three classes, in four decimals."""
    logits = attention(5, 3, seed=3)
    result = unsoftmax.recover(
        lambda X: np.round(softmax(logits(X)), 4), width=5, outputs=3, probabilities=told
    )
    assert result.status is Status.UNRESOLVED
    assert "at most 4 decimals" in result.reason
