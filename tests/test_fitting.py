"""`fit`: recorded pairs are enough, or it says that they are not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import unsoftmax
from unsoftmax import SingleHead, Status

Array = NDArray[np.float64]


def _head(d: int, r: int, seed: int) -> SingleHead:
    return unsoftmax.random_single_head(d, r, seed=seed, scale=1.0 / np.sqrt(d))


def _records(head: SingleHead, n: int, seed: int, singles: int = 0) -> tuple[list[Array], Array]:
    rng = np.random.default_rng([seed, n])
    X = [*rng.standard_normal((singles, 1, head.width)), *rng.standard_normal((n - singles, 2, head.width))]
    return X, np.array([head(x[None])[0] for x in X])


@pytest.mark.parametrize(("d", "r"), [(4, 1), (8, 1), (8, 2)])
@pytest.mark.parametrize("singles", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_half_as_many_records_again_as_parameters_recover(d: int, r: int, singles: bool, given: bool) -> None:
    head = _head(d, r, seed=1)
    X, y = _records(head, int(np.ceil(1.5 * head.parameters)) + 3, seed=1, singles=d if singles else 0)
    result = unsoftmax.fit(X, y, rank=r if given else None)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, SingleHead)
    assert result.model.rank == r
    assert result.error_bound is not None
    assert head.distance(result.model) <= result.error_bound
    assert result.queries.total == 0


def test_an_array_of_pairs() -> None:
    head = _head(12, 2, seed=0)
    X = np.random.default_rng(0).standard_normal((2 * head.parameters, 2, 12))
    result = unsoftmax.fit(X, head(X))
    assert result.status is Status.EXACT
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) < 1e-9


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
@pytest.mark.parametrize("rank", [2, None])
def test_too_few_records_are_said_to_be_too_few(share: float, rank: int | None) -> None:
    head = _head(10, 2, seed=0)
    X, y = _records(head, int(share * head.parameters), seed=0)
    result = unsoftmax.fit(X, y, rank=rank, restarts=4)
    assert result.status in (Status.NOT_IDENTIFIABLE, Status.UNRESOLVED)
    assert result.model is None
    assert "under-determined" in result.reason


def test_records_that_leave_a_direction_unseen() -> None:
    head = _head(6, 1, seed=0)
    X = np.random.default_rng(0).standard_normal((120, 2, 6))
    X[:, :, 0] = 0.0
    result = unsoftmax.fit(X, head(X), rank=1)
    assert result.model is None
    assert result.status in (Status.NOT_IDENTIFIABLE, Status.UNRESOLVED)


def test_one_row_records_alone_do_not_show_W() -> None:
    head = _head(6, 1, seed=0)
    X = np.random.default_rng(0).standard_normal((50, 1, 6))
    assert unsoftmax.fit(X, head(X), rank=1).status is Status.NOT_IDENTIFIABLE


@pytest.mark.parametrize("box", ["bias", "tanh", "noise"])
def test_records_of_something_else_are_not_fitted(box: str) -> None:
    head = unsoftmax.random_single_head(6, 1, seed=0, scale=0.4, biases=box == "bias")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2, 6))
    y = head(X)
    if box == "tanh":
        y = np.tanh(y)
    elif box == "noise":
        y = y + 1e-3 * rng.standard_normal(len(y))
    result = unsoftmax.fit(X, y, rank=1, restarts=3)
    assert result.status is Status.UNRESOLVED
    assert result.model is None


def test_noisy_records_are_fitted_within_a_bound_when_allowed() -> None:
    head = _head(8, 1, seed=0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2, 8))
    result = unsoftmax.fit(X, head(X) + 1e-5 * rng.standard_normal(150), rank=1, tolerance=1e-3)
    assert result.status is Status.WITHIN_BOUND
    assert isinstance(result.model, SingleHead)
    assert result.error_bound is not None
    assert head.distance(result.model) <= result.error_bound < 1e-2


def test_misuse_is_named() -> None:
    X, y = np.zeros((3, 2, 4)), np.zeros(3)
    for sequences, answers, words in (
        (X, y[:2], "one number a sequence"),
        (np.zeros((3, 3, 4)), y, "one or two rows"),
        (np.full((3, 2, 4), np.nan), y, "NaN"),
        (X, np.full(3, np.inf), "NaN or infinity"),
        ([], np.zeros(0), "no records"),
        (7, y, "array"),
    ):
        with pytest.raises(unsoftmax.UsageError, match=words):
            unsoftmax.fit(sequences, answers)
    with pytest.raises(unsoftmax.UsageError, match="rank"):
        unsoftmax.fit(X, y, rank=9)
    assert unsoftmax.fit(X, y).status is Status.NOT_IDENTIFIABLE
