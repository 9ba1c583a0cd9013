"""Targets that answer every row: recovered from the last one, and held against the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array

HIDDEN = unsoftmax.random_multi_head(5, 2, outputs=3, seed=4)


def _all(X: Array) -> Array:
    return np.stack([HIDDEN(np.roll(X, -1 - i, axis=1)) for i in range(X.shape[1])], axis=1)


def _causal(X: Array) -> Array:
    return np.stack([HIDDEN(X[:, : i + 1]) for i in range(X.shape[1])], axis=1)


def _others_differ(X: Array) -> Array:
    answers = _all(X)
    answers[:, :-1] *= 1.0 + 1e-6
    return answers


@pytest.mark.parametrize(("answer", "sees"), [(_all, "all rows"), (_causal, "before it")])
@pytest.mark.parametrize("readout", [None, np.array([1.0, -2.0, 0.5])])
def test_every_row_is_the_same_function(answer: object, sees: str, readout: Array | None) -> None:
    result = unsoftmax.recover(answer, width=5, row="all", readout=readout)
    assert result.status is unsoftmax.Status.EXACT
    assert sees in result.findings[-1].value
    assert result.queries.by_phase["every row"] == result.findings[-1].queries


def test_short_sequences_are_enough() -> None:
    longest = 6

    def answer(X: Array) -> Array:
        assert X.shape[1] <= longest
        return _all(X)

    result = unsoftmax.recover(answer, width=5, row="all", longest=longest)
    assert result.status is unsoftmax.Status.EXACT


def _norms(X: Array) -> Array:
    return np.asarray(np.linalg.norm(X, axis=2))


@pytest.mark.parametrize(
    "pick",
    [
        lambda X: np.full(len(X), X.shape[1] > 20),
        lambda X: _norms(X).max(axis=1) > 6.0,
        lambda X: _norms(X).min(axis=1) == 0.0,
    ],
    ids=["long sequences", "long rows", "rows of zeros"],
)
def test_rows_that_differ_in_some_sequences_only_are_seen(pick: Callable[[Array], Array]) -> None:
    def answer(X: Array) -> Array:
        answers = _all(X)
        answers[pick(X), :-1] *= 1.5
        return answers

    assert unsoftmax.recover(answer, width=5, row="all").status is unsoftmax.Status.OUTSIDE_CLASS


def test_labels_of_every_row_are_compared_as_labels() -> None:
    head = unsoftmax.random_single_head(4, seed=2)

    def answer(X: Array) -> Array:
        rows = [head(np.roll(X, -1 - i, axis=1)) > 0.0 for i in range(X.shape[1])]
        answers = np.stack(rows, axis=1)[..., None].astype(float)
        answers[:, :-1] = 1.0 - answers[:, :-1]
        return answers

    done = unsoftmax.recover(answer, width=4, row="all", readout=np.ones(1))
    assert done.status is unsoftmax.Status.OUTSIDE_CLASS
    assert "others deviate" in done.reason


def test_rows_are_no_longer_than_the_user_allows() -> None:
    head = unsoftmax.random_single_head(4, seed=2)

    def answer(X: Array) -> Array:
        assert _norms(X).max() <= 0.5 * (1.0 + 1e-12)
        return np.stack([head(np.roll(X, -1 - i, axis=1)) for i in range(X.shape[1])], axis=1)[..., None]

    done = unsoftmax.recover(answer, width=4, row="all", readout=np.ones(1), input_bound=0.5)
    assert done.status.recovered


def test_a_row_that_differs_ends_without_a_model() -> None:
    result = unsoftmax.recover(_others_differ, width=5, row="all")
    assert result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert result.model is None
    assert "others deviate" in result.reason
    assert unsoftmax.recover(_others_differ, width=5, row="last").status is unsoftmax.Status.EXACT


def test_one_row_sequences_that_raise_elsewhere_say_so() -> None:
    with pytest.raises(unsoftmax.errors.UsageError, match="row='last' is for targets that answer every row"):
        unsoftmax.recover(lambda X: HIDDEN(X), width=5, row="all")


def test_budget_and_audit() -> None:
    spent = unsoftmax.recover(_all, width=5, row="all", budget=60)
    assert spent.status is unsoftmax.Status.BUDGET_SPENT
    assert spent.queries.total <= 60
    audited = unsoftmax.audit_target(_others_differ, width=5, row="all")
    assert audited.result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert unsoftmax.audit_target(_all, width=5, row="all").result.status is unsoftmax.Status.EXACT
