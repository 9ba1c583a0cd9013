"""Targets that take few rows. Three tell heads apart; two do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import MultiHead, SingleHead, Status
from unsoftmax.arrays import Array

D = 5


def turned(head: SingleHead) -> MultiHead:
    """Two heads that answer sequences of one and of two rows as this one does."""
    return MultiHead([SingleHead(-head.W, -head.v), SingleHead(np.zeros((D, D)), 2.0 * head.v)])


def in_float32(model: MultiHead) -> Callable[[Array], Array]:
    """The same heads, every step in float32."""

    def answer(X: Array) -> Array:
        x = X.astype(np.float32)
        total: Any = np.float32(0.0)
        for head in model.heads:
            scores = np.einsum("bij,jk,bk->bi", x, head.W.astype(np.float32), x[:, -1])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            total = total + np.einsum("bi,bij->bj", weights, x) @ head.v.astype(np.float32)
        return np.asarray(total, dtype=np.float64)

    return answer


def short(target: Callable[[Array], Array], longest: int) -> Callable[[Array], Array]:
    def answer(X: Array) -> Array:
        assert X.shape[1] <= longest
        return target(X)

    return answer


def test_two_rows_do_not_tell_a_head_from_two() -> None:
    head = unsoftmax.random_single_head(D, seed=1)
    one, two = MultiHead([head]), turned(head)
    X = np.random.default_rng(0).standard_normal((20, 2, D))
    np.testing.assert_allclose(one(X), two(X), atol=1e-12)
    assert one.canonical().distance(two.canonical()) > 0.1
    for target in (two, in_float32(two)):
        result = unsoftmax.recover(short(target, 2), width=D, longest=2)
        assert result.status is Status.UNRESOLVED
        assert "takes sequences of 3 rows" in result.reason
    found = unsoftmax.check(short(in_float32(two), 2), width=D)
    assert found.ending is Status.UNRESOLVED


@pytest.mark.parametrize("outputs", [None, 2, D])
@pytest.mark.parametrize("heads", [1, 2])
def test_three_rows_do(heads: int, outputs: int | None) -> None:
    model = unsoftmax.random_multi_head(D, heads, outputs=outputs, seed=3)
    found = unsoftmax.check(short(model, 3), width=D)
    assert found.recoverable
    result = unsoftmax.recover(short(model, 3), width=D, longest=3)
    assert result.status is Status.EXACT
    X = np.random.default_rng(1).standard_normal((20, 9, D))  # longer ones than the target took
    np.testing.assert_allclose(result.unwrap()(X), model(X), atol=1e-9)
