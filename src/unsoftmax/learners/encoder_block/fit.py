"""Joint refinement of a whole block on sequences of any length: residuals, and the Jacobian for `refine`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.forward_pass import forward_pass
from unsoftmax.learners.encoder_block.jacobian import BlockJacobian, GroupJacobian
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.solvers.joint_refinement import Linearisation

__all__ = ["BlockFit", "Sequences"]

_DIFFERENCE = 1e-6  # step of the two columns of log eps, by differences


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
        return forward_pass(self.shape, state, rows).out

    def residual(self, state: BlockState, /) -> Array:
        parts = []
        for group in self.data:
            parts.append(((self.predict(state, group.rows) - group.answers) * group.weights[:, None]).ravel())
        return np.concatenate(parts)

    def moved(self, state: BlockState, step: Array, /) -> BlockState:
        return state.moved(step)

    def linearise(self, state: BlockState, /) -> Linearisation:
        return BlockJacobian(tuple(self._group(state, group) for group in self.data))

    def _group(self, state: BlockState, group: Sequences) -> GroupJacobian:
        there = forward_pass(self.shape, state, group.rows)
        columns = np.zeros((*there.out.shape, 2))  # derivatives by the logarithms of both eps
        for i in range(2 if self.free_eps else 0):
            moved = state.log_eps.copy()
            moved[i] += _DIFFERENCE
            other = self.predict(replace(state, log_eps=moved), group.rows)
            columns[:, :, i] = (other - there.out) / _DIFFERENCE
        return GroupJacobian(self.shape, state, there, group.weights, columns)
