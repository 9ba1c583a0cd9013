"""Pairs of rows for the joint fit: grids at chosen score spreads, and pairs aimed at the transition of one
head.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.isolated_heads import Surroundings
from unsoftmax.learners.computed.two_row_queries import TwoRowQueries, unit
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock

__all__ = ["aimed_pairs", "grid_of_spread", "grid_of_tokens"]

# of a first row inside the readouts' span: without it a wide layer's answers would be small
_READOUT_SHARE = 0.7
_HIGHEST_AIM = 2.5  # scores that pairs are aimed at: within it the logistic curve keeps a third of its slope
# of a unit row along the head's own readout; the rest, 0.8 of it, reaches every direction of W
_AIM_COSINE = 0.6
# width of a layer for every first row that shares its asking rows with others, and asking rows for each of
# them: shifts for so few scores change an asking row little
_WIDTH_OF_ONE, _ASKING = 24, 8


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
) -> list[AnswerBlock]:
    """Long pairs, a share for every head, with b shifted until that head's score is moderate.

    Long rows with a score in the transition are what determines W relative to its size. In wide layers
    several first rows share their asking rows, because products with such grids take a fraction of the time.
    """
    wide = max(1, queries.width // _WIDTH_OF_ONE)
    first, last = [], []
    for h, rank in enumerate(heads.ranks):
        together = min(wide, max(1, rank // 2))
        asking = 1 if wide == 1 else _ASKING * together
        groups = int(np.ceil(count / heads.heads / (together * asking)))
        a, b = _aimed_rows(heads, h, (groups, together, asking), rng, longest)
        first += list(a)
        last += list(b)
    if wide == 1:
        return [queries.pairs(np.concatenate(first), np.concatenate(last), "aimed pairs")]
    return [queries.grid(*queries.on_one_grid(a, b), "aimed pairs") for a, b in zip(first, last, strict=True)]


def _aimed_rows(
    heads: HeadFactors, h: int, shape: tuple[int, int, int], rng: np.random.Generator, longest: float
) -> tuple[Array, Array]:
    """shape: groups, and first rows and asking rows of each; the rows as (groups, ·, d)."""
    d, (groups, together, asking) = heads.width, shape
    own, matrix = Surroundings.of(heads.v, h).own, heads.matrices[h]
    a = _AIM_COSINE * own + np.sqrt(1 - _AIM_COSINE**2) * unit(rng.standard_normal((groups, together, d)))
    a, b = unit(a), unit(rng.standard_normal((groups, asking, d)))
    pull = a @ matrix
    plain = pull[..., :d] @ b.transpose(0, 2, 1)

    def scores(length: float) -> Array:
        return np.asarray(length**2 * plain + length * pull[..., d:])

    length = min(max(float(np.sqrt(d)), _scale_of(lambda s: float(scores(s).std()), 1.5)), longest / 4)
    found = scores(length)
    moderate = rng.uniform(-_HIGHEST_AIM, _HIGHEST_AIM, found.shape)
    change = np.where(np.abs(found) > _HIGHEST_AIM, moderate, found) - found
    shift = np.linalg.pinv(length * pull[..., :d], rcond=1e-3) @ change
    b = length * b + shift.transpose(0, 2, 1)
    b = b * np.minimum(1.0, 3.0 * length / np.linalg.norm(b, axis=2, keepdims=True))
    return length * a, b


def _scale_of(value: Callable[[float], float], wanted: float) -> float:
    """The scale at which a rising function reaches a value, by bisection of its logarithm."""
    low, high = 1e-4, 1e4
    for _ in range(50):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return float(np.sqrt(low * high))
