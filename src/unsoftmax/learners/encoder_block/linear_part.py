"""The linear part beside the neurons of a post-norm block, taken apart: a gain of every column, reflections
of neurons, and neurons that are on everywhere.

The last ones leave a matrix of low rank, so that the three are told apart by alternating between the matrix
of some rank nearest to the rest, and least squares for gains and reflections.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["LinearPart", "take_apart"]

_ROUNDS = 2000  # 40 to 200 were enough for ranks of half of what the dimensions allow
_SETTLED = 1e-12  # relative: three digits above float64 rounding, which sums of d terms lose
_LEFT = 1e-6  # of the linear part: right ranks leave 1e-8, because it is known so well
_FILLED = 0.9  # of all entries: unknowns up to which the parts are told apart


@dataclass(frozen=True)
class LinearPart:
    """gain: (d,). flips: (J,), zero or one. left (k, q) and right (q, k): of what is on everywhere. off: what
    they leave of the linear part, over its size."""

    gain: Array
    flips: Array
    left: Array
    right: Array
    off: float


def take_apart(linear: Array, gains: Array, reflections: Array) -> LinearPart:
    """linear: (k, k). gains: (k, k, d) and reflections: (k, k, J), what each adds. The smallest rank that
    leaves nothing, else the rank that leaves least."""
    k, best = len(linear), None
    unknowns = gains.shape[2] + reflections.shape[2]
    for rank in range(k):
        if rank and unknowns + rank * (2 * k - rank) > _FILLED * k * k:
            break
        found = _with_rank(linear, gains, reflections, rank)
        if best is None or found.off < best.off:
            best = found
        if found.off < _LEFT:
            break
    assert best is not None
    return best


def _with_rank(linear: Array, gains: Array, reflections: Array, rank: int) -> LinearPart:
    k, d = len(linear), gains.shape[2]
    design = np.concatenate([gains, reflections], axis=2).reshape(k * k, -1)
    solved, _ = _alternated(linear, design, rank)
    flips = (solved[d:] > 0.5).astype(np.float64)
    rest = linear - reflections @ flips
    gain, low = _alternated(rest, design[:, :d], rank)
    left, sizes, right = np.linalg.svd(low)
    off = float(np.abs(rest - gains @ gain - low).max()) / float(np.abs(linear).max())
    return LinearPart(gain, flips, left[:, :rank] * sizes[:rank], right[:rank], off)


def _alternated(matrix: Array, design: Array, rank: int) -> tuple[Array, Array]:
    """(coefficients of the design's columns, matrix of this rank) whose sum is nearest."""
    scale = np.linalg.norm(design, axis=0) + 1e-300
    inverse = np.linalg.pinv(design / scale, rcond=1e-10) / scale[:, None]
    low, solved = np.zeros_like(matrix), inverse @ matrix.ravel()
    for _ in range(_ROUNDS if rank else 0):
        left, sizes, right = np.linalg.svd(matrix - (design @ solved).reshape(matrix.shape))
        nearest = (left[:, :rank] * sizes[:rank]) @ right[:rank]
        moved = float(np.abs(nearest - low).max())
        low = nearest
        solved = inverse @ (matrix - low).ravel()
        if moved < _SETTLED * float(np.abs(matrix).max()):
            break
    return solved, low
