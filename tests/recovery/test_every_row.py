"""Targets that answer every row: recovered from the last one, and held against the others."""

from __future__ import annotations

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


def test_a_row_that_differs_ends_without_a_model() -> None:
    result = unsoftmax.recover(_others_differ, width=5, row="all")
    assert result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert result.model is None
    assert "others deviate" in result.reason
    assert unsoftmax.recover(_others_differ, width=5, row="last").status is unsoftmax.Status.EXACT


def test_one_row_sequences_that_raise_elsewhere_say_so() -> None:
    with pytest.raises(unsoftmax.OracleFault, match="row='last' is for targets that answer every row"):
        unsoftmax.recover(lambda X: HIDDEN(X), width=5, row="all")


def test_budget_and_audit() -> None:
    spent = unsoftmax.recover(_all, width=5, row="all", budget=60)
    assert spent.status is unsoftmax.Status.BUDGET_SPENT
    assert spent.queries.total <= 60
    audited = unsoftmax.audit_target(_others_differ, width=5, row="all")
    assert audited.result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert unsoftmax.audit_target(_all, width=5, row="all").result.status is unsoftmax.Status.EXACT
