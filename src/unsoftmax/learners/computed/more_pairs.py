"""Pairs of rows for the joint fit: grids at chosen score spreads, and pairs aimed at the transition of one
head.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.isolated_heads import Surroundings
from unsoftmax.learners.computed.two_row_queries import TwoRowQueries, unit
from unsoftmax.solvers.head_factors import HeadFactors, with_one
from unsoftmax.solvers.two_row_fit import AnswerBlock

__all__ = ["aimed_pairs", "grid_of_spread", "grid_of_tokens"]

_READOUT_SHARE = (
    0.7  # of a first row inside the readouts' span: without it a wide layer's answers would be small
)
_HIGHEST_AIM = 2.5  # scores that pairs are aimed at: within it the logistic curve keeps a third of its slope
_AIM_COSINE = 0.6


def _first_rows(heads: HeadFactors, count: int, rng: np.random.Generator) -> Array:
    span = np.linalg.svd(unit(heads.v), full_matrices=False)[2]
    inside = unit(rng.standard_normal((count, len(span))) @ span)
    return unit(
        _READOUT_SHARE * inside
        + np.sqrt(1 - _READOUT_SHARE**2) * unit(rng.standard_normal((count, heads.width)))
    )


def _grid(
    queries: TwoRowQueries, heads: HeadFactors, count: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    n_first = max(4, round(np.sqrt(count)))
    n_last = max(4, round(count / n_first))
    return _first_rows(heads, n_first, rng), unit(rng.standard_normal((n_last, queries.width)))


def grid_of_spread(
    queries: TwoRowQueries, heads: HeadFactors, count: float, spread: float, rng: np.random.Generator
) -> AnswerBlock:
    """About `count` pairs on a grid, as long as makes the strongest head's scores have this standard
    deviation.
    """
    A, B = _grid(queries, heads, count, rng)
    scale = _scale_of(
        lambda s: max(float(heads.scores(h, s * A, s * B).std()) for h in range(heads.heads)), spread
    )
    A, B = queries.on_one_grid(scale * A, scale * B)
    return queries.grid(A, B, f"grid of spread {spread:g}")


def grid_of_tokens(
    queries: TwoRowQueries, heads: HeadFactors, count: float, rng: np.random.Generator, longest: float
) -> AnswerBlock:
    """About `count` pairs on a grid, rows of length √d as tokens have, whatever their scores; no longer than
    `longest`.
    """
    A, B = _grid(queries, heads, count, rng)
    length = min(float(np.sqrt(queries.width)), longest / 2)
    A, B = queries.on_one_grid(length * A, length * B)
    return queries.grid(A, B, "grid of tokens")


def aimed_pairs(
    queries: TwoRowQueries, heads: HeadFactors, count: float, rng: np.random.Generator, longest: float
) -> AnswerBlock:
    """Long pairs, a share for every head, with b shifted until that head's score is moderate.

    Long rows with a score in the transition are what determines W relative to its size.
    """
    d = queries.width
    each = int(np.ceil(count / heads.heads))
    first, last = [], []
    for h, matrix in enumerate(heads.matrices):
        own = Surroundings.of(heads.v, h).own
        a = unit(_AIM_COSINE * own + np.sqrt(1 - _AIM_COSINE**2) * unit(rng.standard_normal((each, d))))
        b = unit(rng.standard_normal((each, d)))

        def spread(s: float, a: Array = a, b: Array = b, matrix: Array = matrix) -> float:
            return float(np.einsum("nd,de,ne->n", s * a, matrix, with_one(s * b), optimize=True).std())

        length = min(max(float(np.sqrt(d)), _scale_of(spread, 1.5)), longest / 4)
        a, b = length * a, length * b
        pull = a @ matrix
        score = (pull[:, :d] * b).sum(axis=1) + pull[:, d]
        wanted = np.where(np.abs(score) > _HIGHEST_AIM, rng.uniform(-_HIGHEST_AIM, _HIGHEST_AIM, each), score)
        b = b + ((wanted - score) / (pull[:, :d] ** 2).sum(axis=1))[:, None] * pull[:, :d]
        b *= np.minimum(1.0, 3.0 * length / np.linalg.norm(b, axis=1))[:, None]
        first.append(a)
        last.append(b)
    return queries.pairs(np.concatenate(first), np.concatenate(last), "aimed pairs")


def _scale_of(value: Callable[[float], float], wanted: float) -> float:
    """The scale at which a rising function reaches a value, by bisection of its logarithm."""
    low, high = 1e-4, 1e4
    for _ in range(50):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return float(np.sqrt(low * high))
