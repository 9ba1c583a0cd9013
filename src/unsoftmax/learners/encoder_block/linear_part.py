"""The linear part beside the neurons of a block, taken apart: a gain of every column, reflections of neurons,
and neurons that are on everywhere.

The last ones leave a matrix of low rank, so that the three are told apart by alternating between the matrix
of some rank nearest to the rest, and least squares for gains and reflections.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.parts import Activation

__all__ = ["Oriented", "column_gains", "oriented_neurons"]

_ROUNDS = 2000  # 40 to 200 were enough for ranks of half of what the dimensions allow
_SETTLED = 1e-12  # relative: three digits above float64 rounding, which sums of d terms lose
_FILLED = 0.9  # of all entries: unknowns up to which the parts are told apart
_ALWAYS_ON = 2.0  # times the radius of the ball: the bias of such a neuron, of which none is told


@dataclass(frozen=True)
class Oriented:
    """inner (J, k + 1) and outer (m, J + 1) of neurons that are the right way round, those that are always on
    last. gain: (d,), coefficients of the gains. rest (k, m): what all of them leave of the linear part; off:
    its size over that of the linear part."""

    inner: Array
    outer: Array
    gain: Array
    rest: Array
    off: float


@dataclass(frozen=True)
class _LinearPart:
    """gain: (d,). flips: (J,), zero or one. left (k, q) and right (q, m): of what is on everywhere. rest: (k,
    m). off: its size over that of the linear part."""

    gain: Array
    flips: Array
    left: Array
    right: Array
    rest: Array
    off: float


def column_gains(basis: Array) -> Array:
    """(k, k, d): what a gain of every column adds to a linear part, on the basis (d, k)."""
    return np.asarray(np.einsum("di,dj->ijd", basis, basis))


def oriented_neurons(
    activation: Activation, inner: Array, weights: Array, gains: Array, radius: float, exact: float
) -> Oriented:
    """Neurons inner (J, k + 1) on a ball or sphere of this radius, each turned the right way. weights
    (J + k + 1, m): those of the neurons, of the linear part beside them, and the constant. gains: (k, m, d),
    what else may be linear. exact: what the right parts leave of the linear part."""
    J, k = len(inner), inner.shape[1] - 1
    outer, linear, constant = weights[:J], weights[J:-1], weights[-1]
    reflection = activation.reflection
    reflections = reflection.slope * np.einsum("ji,jm->imj", inner[:, :-1], outer)
    if reflection.slope == 0.0:
        reflections = reflections[:, :, :0]
    part = _taken_apart(linear, gains, reflections, exact, passes=reflection.slope != 0.0)
    flips = part.flips if len(part.flips) else np.zeros(J)
    constant = constant - (flips * (reflection.slope * inner[:, -1] + reflection.constant)) @ outer
    sizes = np.linalg.norm(part.left, axis=0)
    on = np.full(len(sizes), _ALWAYS_ON * radius + activation.straight)  # biases, with unit weights
    constant = constant - (on * sizes) @ part.right
    always = np.column_stack([(part.left / sizes).T.reshape(-1, k), on])
    return Oriented(
        np.vstack([inner * (1.0 - 2.0 * flips)[:, None], always]),
        np.column_stack([outer.T, part.right.T * sizes, constant]),
        part.gain,
        part.rest,
        part.off,
    )


def _taken_apart(linear: Array, gains: Array, reflections: Array, exact: float, passes: bool) -> _LinearPart:
    """linear: (k, m). gains: (k, m, d) and reflections: (k, m, J), what each adds. The smallest rank that
    leaves nothing, else none. passes: whether neurons that are on pass their arguments on."""
    k, m = linear.shape
    none = _with_rank(linear, gains, reflections, 0)
    unknowns = gains.shape[2] + reflections.shape[2]
    for rank in range(1, min(k, m) if passes and none.off >= exact else 1):
        if unknowns + rank * (k + m - rank) > _FILLED * k * m:
            break
        found = _with_rank(linear, gains, reflections, rank)
        if found.off < exact:
            return found
    return none


def _with_rank(linear: Array, gains: Array, reflections: Array, rank: int) -> _LinearPart:
    d = gains.shape[2]
    design = np.concatenate([gains, reflections], axis=2).reshape(linear.size, -1)
    solved, _ = _alternated(linear, design, rank)
    flips = (solved[d:] > 0.5).astype(np.float64)
    unflipped = linear - reflections @ flips
    gain, low = _alternated(unflipped, design[:, :d], rank)
    left, sizes, right = np.linalg.svd(low)
    rest = unflipped - gains @ gain - low
    off = float(np.linalg.norm(rest)) / max(float(np.linalg.norm(linear)), 1e-300)
    return _LinearPart(gain, flips, left[:, :rank] * sizes[:rank], right[:rank], rest, off)


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
