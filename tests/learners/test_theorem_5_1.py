"""Theorem 5.1: exact count, success above the threshold, an honest word below it."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax import SingleHead, Size, Status


@pytest.mark.parametrize(("d", "r", "C"), [(8, 1, 3.0), (16, 2, 3.25), (16, 4, 2.5)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_recovers_at_exactly_the_claimed_count(d: int, r: int, C: float, scale: float) -> None:
    learner = unsoftmax.theorem_5_1(r, C)
    for seed in range(2):
        head = unsoftmax.random_single_head(d, r, seed=seed, scale=scale)
        result = unsoftmax.recover(lambda X, head=head: head(X), width=d, seed=seed, learner=learner)
        assert result.status is Status.EXACT, result.reason
        assert isinstance(result.model, SingleHead)
        assert head.distance(result.model) <= 1e-8
        assert result.queries.learning == d + int(np.ceil(2 * C * r * d))
        assert learner.claim.queries.holds(result.queries.learning, Size(d, (r,)))


def test_too_small_a_C_is_said() -> None:
    result = unsoftmax.recover(
        unsoftmax.random_single_head(16, 2, seed=0), learner=unsoftmax.theorem_5_1(2, C=1.2)
    )
    assert result.status is Status.UNRESOLVED
    assert result.model is None
    assert "C = 1.2 is too small" in result.reason


def test_too_small_a_rank_is_said() -> None:
    result = unsoftmax.recover(unsoftmax.random_single_head(12, seed=0), learner=unsoftmax.theorem_5_1(2))
    assert result.status is Status.UNRESOLVED


def test_biases_do_not_pass() -> None:
    result = unsoftmax.recover(
        unsoftmax.random_single_head(8, 1, seed=0, biases=True), learner=unsoftmax.theorem_5_1(1)
    )
    assert not result.status.recovered


def test_v_zero_hides_W() -> None:
    result = unsoftmax.recover(SingleHead(np.eye(4), np.zeros(4)), learner=unsoftmax.theorem_5_1(1))
    assert result.status is Status.NOT_IDENTIFIABLE


def test_W_zero() -> None:
    result = unsoftmax.recover(SingleHead(np.zeros((6, 6)), np.ones(6)), learner=unsoftmax.theorem_5_1(1))
    assert result.status is Status.EXACT
    assert isinstance(result.model, SingleHead)
    assert not result.model.W.any()


@pytest.mark.parametrize(("rank", "C"), [(0, 3.0), (-1, 3.0), (True, 3.0), (1.5, 3.0), (1, 0.0), (1, np.nan)])
def test_misuse(rank: int, C: float) -> None:
    with pytest.raises(unsoftmax.UsageError):
        unsoftmax.theorem_5_1(rank, C)


def test_a_rank_beyond_the_width() -> None:
    with pytest.raises(unsoftmax.UsageError, match="at most 4"):
        unsoftmax.recover(unsoftmax.random_single_head(4), learner=unsoftmax.theorem_5_1(5))
