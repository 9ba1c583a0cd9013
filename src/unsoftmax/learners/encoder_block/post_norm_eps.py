"""Both eps of a post-norm block where they are so small that usual rows do not show them (1e-12, as in BERT).

Everything else is known from usual rows. The first eps then shows in rows whose stream y is as small as its
root, the second one where the stream r of the last norm is, which the known network tells.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.last_norm import LastNorm
from unsoftmax.learners.encoder_block.post_norm_network import Middle
from unsoftmax.learners.encoder_block.post_norm_rows import PostNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.held_parameters import Held
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["single_rows", "where_r_vanishes", "with_hidden_eps"]

_COUNT = 4  # rows over width
_REACH = 0.95  # of the radius of the ball
_STARTS = 60  # a cap: ten distances from the middle, then fifty directions at the largest
_NEWTON = 40  # a cap: Newton
_VANISHES = 1e-13  # of the first gain: r at its zero
# of u: without biases r vanishes with y, and rows there tell the product of both eps, so that what they say
# of the last one would be no better than the first; usual rows have told it
_NOWHERE_ELSE = 1e-6
_ROUNDS = 5  # a cap: from 1e-5 to 1e-12 in three
_STAYS = 0.1  # of log eps: rows twice as small, or as large, show it as well
_FIT = RefinementOptions(iterations=30, damping=1e-6, improvement=1e-6)


def with_hidden_eps(
    asks: AsksSequences, shape: BlockShape, state: BlockState, rng: np.random.Generator
) -> BlockState:
    """The same block with both eps as rows show them that are near enough to where norms divide by zero. An
    eps that moves far is read again, from rows as small as it asks for."""
    k, d = shape.basis.shape[1], shape.width

    def stream(which: int) -> Array:
        sizes = np.exp(rng.uniform(-1.0, 1.0, (_COUNT * d, 1)))
        return np.asarray(np.exp(0.5 * state.log_eps[which]) * sizes * rng.standard_normal((_COUNT * d, k)))

    for _ in range(_ROUNDS):
        before = state.log_eps
        state = _fitted(asks, shape, state, single_rows(shape, state).rows_of(stream(0)), 0)
        zero, slopes = where_r_vanishes(shape, state, rng)
        if float(np.abs(zero).max()) > _NOWHERE_ELSE:
            rows = single_rows(shape, state)
            u = zero + np.linalg.solve(slopes, stream(1).T).T
            state = _fitted(asks, shape, state, rows.rows_of(rows.inside(u)), 1)
        if float(np.abs(state.log_eps - before).max()) < _STAYS:
            break
    return state


def single_rows(shape: BlockShape, state: BlockState) -> PostNormRows:
    """What single rows make of the stream."""
    heads = state.outputs[:, :-1].reshape(len(state.outputs), state.heads, -1)
    path = np.einsum("mhr,hrd->md", heads, state.values)
    return PostNormRows(shape, path, state.outputs[:, -1], float(np.exp(state.log_eps[0])))


def _fitted(asks: AsksSequences, shape: BlockShape, state: BlockState, rows: Array, which: int) -> BlockState:
    """One eps, and for the first the constant of the heads, which shows best where y vanishes; all else
    held."""
    single = rows[:, None]
    free = state.unpacked(np.zeros(state.unknowns))
    free.log_eps[which] = 1.0
    free.outputs[:, -1] = float(which == 0)
    data = Sequences(single, asks(single), np.ones(len(single)))
    return refine(Held(BlockFit(shape, (data,)), free.packed() > 0.0), state, _FIT).state


def where_r_vanishes(shape: BlockShape, state: BlockState, rng: np.random.Generator) -> tuple[Array, Array]:
    """(u (k,), derivatives of r there (k, k)) with r(u) = 0 inside the ball, by Newton's method."""
    k, radius = shape.basis.shape[1], float(np.sqrt(shape.width))
    norm = LastNorm(shape.basis, state.gains[1], 0.0, np.zeros(k), 1.0)
    middle = Middle(shape.activation, state.gains[0], state.inner, state.outer, norm)
    for attempt in range(_STARTS):
        away = rng.standard_normal(k)
        u = np.asarray(away * (_REACH * radius * min(attempt, 10) / 10.0 / np.linalg.norm(away)))
        for _ in range(_NEWTON):
            r, slopes = (part[0] for part in middle.stream(u[None]))
            step = -np.linalg.solve(slopes, r)
            u = u + step * min(1.0, 0.3 * radius / float(np.linalg.norm(step)))
            if float(np.abs(step).max()) < _VANISHES * radius:
                break
        if float(np.abs(step).max()) < 1e3 * _VANISHES * radius and np.linalg.norm(u) < _REACH * radius:
            return u, slopes
    raise Unresolved(
        "the eps of the last norm does not show: no input of the network was found at which the residual "
        "stream vanishes"
    )
