"""JᵀJ between two heads on one block of two-row answers, without J: n·r² + n_a·(r·d)² operations on a grid
instead of n·(r·d)².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_fits.head_factors import with_one

__all__ = ["HeadAt", "head_products"]


@dataclass(frozen=True)
class HeadAt:
    """A head on a block: K a (n_a, r), Q [b; 1] (n_b, r), the share σ of the first row, and slope = σ(1 −
    σ)(a·v).
    """

    keys: Array
    queries: Array
    share: Array
    slope: Array


def head_products(A: Array, B: Array, weights: Array, one: HeadAt, two: HeadAt, grid: bool) -> Array:
    """J_oneᵀ J_two over (K, Q, v) of one head and (K, Q, v) of another."""
    if not grid:
        return np.asarray(_jacobian(A, B, weights, one).T @ _jacobian(A, B, weights, two))
    return _on_grid(A, B, weights**2, one, two)


def _jacobian(A: Array, B: Array, weights: Array, at: HeadAt) -> Array:
    sloped = weights * at.slope
    keys, queries = _outer(sloped * at.queries, A), _outer(sloped * at.keys, with_one(B))
    return np.concatenate([keys, queries, weights * (at.share * A + B)], axis=1)


def _outer(left: Array, right: Array) -> Array:
    """Rows left_i ⊗ right_i."""
    return np.asarray((left[:, :, None] * right[:, None]).reshape(len(left), -1))


def _on_grid(A: Array, B: Array, squares: Array, one: HeadAt, two: HeadAt) -> Array:
    E = with_one(B)
    (_, d), e, r = A.shape, E.shape[1], one.keys.shape[1]
    both = one.slope * two.slope * squares
    key_key: Array = (both @ _outer(one.queries, two.queries)).T @ _outer(A, A)
    key_key = key_key.reshape(r, r, d, d).transpose(0, 2, 1, 3).reshape(r * d, r * d)
    query_query: Array = (both.T @ _outer(one.keys, two.keys)).T @ _outer(E, E)
    query_query = query_query.reshape(r, r, e, e).transpose(0, 2, 1, 3).reshape(r * e, r * e)
    key_query: Array = (_outer(A, two.keys).T @ both @ _outer(one.queries, E)).reshape(d, r, r, e)
    key_query = key_query.transpose(2, 0, 1, 3).reshape(r * d, r * e)
    query_key: Array = (_outer(A, one.keys).T @ both @ _outer(two.queries, E)).reshape(d, r, r, e)
    query_key = query_key.transpose(1, 3, 2, 0).reshape(r * e, r * d)
    value_value = (A.T * (one.share * two.share * squares).sum(axis=1)) @ A + (B.T * squares.sum(axis=0)) @ B
    value_value += A.T @ (one.share * squares) @ B + (A.T @ (two.share * squares) @ B).T
    return np.block(
        [
            [key_key, key_query, _key_value(A, B, squares, one, two.share)],
            [query_key, query_query, _query_value(A, B, squares, one, two.share)],
            [
                _key_value(A, B, squares, two, one.share).T,
                _query_value(A, B, squares, two, one.share).T,
                value_value,
            ],
        ]
    )


def _key_value(A: Array, B: Array, squares: Array, at: HeadAt, share: Array) -> Array:
    """J_Kᵀ J_v, where the other head's v acts through its share."""
    d, r = A.shape[1], at.keys.shape[1]
    sloped = at.slope * squares
    by_a = (((sloped * share) @ at.queries).T @ _outer(A, A)).reshape(r * d, d)
    by_b = (A.T @ sloped @ _outer(at.queries, B)).reshape(d, r, d).transpose(1, 0, 2).reshape(r * d, d)
    return np.asarray(by_a + by_b)


def _query_value(A: Array, B: Array, squares: Array, at: HeadAt, share: Array) -> Array:
    E = with_one(B)
    d, e, r = A.shape[1], E.shape[1], at.keys.shape[1]
    sloped = at.slope * squares
    by_a = (_outer(A, at.keys).T @ (sloped * share) @ E).reshape(d, r, e).transpose(1, 2, 0).reshape(r * e, d)
    return np.asarray(by_a + ((sloped.T @ at.keys).T @ _outer(E, B)).reshape(r * e, d))
