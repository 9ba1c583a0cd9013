"""Joint refinement of a whole block on sequences of any length: residuals, and the Jacobian for `refine`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.forward_pass import forward_pass
from unsoftmax.learners.encoder_block.jacobian import BlockJacobian, Group, GroupJacobian, PooledJacobian
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.solvers.least_squares.joint_refinement import Linearisation

__all__ = ["BlockFit", "Sequences"]

_DIFFERENCE = 1e-6  # step of the two columns of log eps, by differences
_EPS_STEP = 2.0  # of log eps: further away its slope tells nothing, and an eps would run to zero


@dataclass(frozen=True)
class Sequences:
    """Sequences of one length (n, N, d), their answers (n, d), and weights (n,) of their residuals."""

    rows: Array
    answers: Array
    weights: Array


@dataclass(frozen=True)
class BlockFit:
    """Least squares of a block's answers over sequences of several lengths. free_eps: whether both eps may
    move."""

    shape: BlockShape
    data: tuple[Sequences, ...]
    free_eps: bool = True

    def predict(self, state: BlockState, rows: Array) -> Array:
        """Answers (n, d)."""
        out = forward_pass(self.shape, state, _asked(self.shape, rows)).out
        return np.asarray(out.reshape(len(rows), -1, out.shape[1]).mean(axis=1))

    def residual(self, state: BlockState, /) -> Array:
        parts = []
        for group in self.data:
            parts.append(((self.predict(state, group.rows) - group.answers) * group.weights[:, None]).ravel())
        return np.concatenate(parts)

    def moved(self, state: BlockState, step: Array, /) -> BlockState:
        moved = state.moved(step)
        limited = np.clip(moved.log_eps, state.log_eps - _EPS_STEP, state.log_eps + _EPS_STEP)
        return replace(moved, log_eps=limited)

    def linearise(self, state: BlockState, /) -> Linearisation:
        return BlockJacobian(tuple(self._group(state, group) for group in self.data), state)

    def _group(self, state: BlockState, group: Sequences) -> Group:
        asked = _asked(self.shape, group.rows)
        each = len(asked) // len(group.rows)
        there = forward_pass(self.shape, state, asked)
        columns = np.zeros((*there.out.shape, 2))  # derivatives by the logarithms of both eps
        for i in range(2 if self.free_eps else 0):
            moved = state.log_eps.copy()
            moved[i] += _DIFFERENCE
            other = forward_pass(self.shape, replace(state, log_eps=moved), asked).out
            columns[:, :, i] = (other - there.out) / _DIFFERENCE
        found = GroupJacobian(self.shape, state, there, np.repeat(group.weights, each), columns)
        return found if each == 1 else PooledJacobian(found, each)


def _asked(shape: BlockShape, rows: Array) -> Array:
    """The sequences whose last rows are answered; behind a mean over rows all turns (n·N, N, d) of each."""
    n, N, d = rows.shape
    if not shape.pooled or N == 1:
        return rows
    return np.stack([np.roll(rows, shift, axis=1) for shift in range(N)], axis=1).reshape(n * N, N, d)
