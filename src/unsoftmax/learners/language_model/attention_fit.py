"""Queries, keys, values, outputs and the rotary base together, fitted to the states of prompts of several
rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.learners.language_model.attention_metric import AttentionMetric
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState, Prompted
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian, Linearisation, Products

__all__ = ["DENSE", "AttentionFit"]

# unknowns up to which the Jacobian is held as an array: the eigenvalues of its normal matrix, which the
# symmetries make singular, take longer than conjugate gradients from about 1000 on. Four heads with keys and
# values of their own at d=16 (1025 unknowns) took over a minute by products, and 10 s with an array
DENSE = 1200


@dataclass(frozen=True, eq=False)
class AttentionFit:
    """Least squares over prompts of several lengths."""

    data: Sequence[Prompted]
    after: AfterAttention

    @classmethod
    def joined(cls, fits: Sequence[Self]) -> Self:
        """The prompts of several fits of one layer in one."""
        return cls([part for fit in fits for part in fit.data], fits[0].after)

    def residual(self, state: AttentionState, /) -> Array:
        return np.concatenate(
            [(AttentionPass(state, part, self.after).seen - part.seen).ravel() for part in self.data]
        )

    def moved(self, state: AttentionState, step: Array, /) -> AttentionState:
        return state.moved(step)

    def linearise(self, state: AttentionState, /) -> Linearisation:
        passes = [AttentionPass(state, part, self.after) for part in self.data]
        if state.unknowns <= DENSE:
            return DenseJacobian(np.concatenate([each.dense() for each in passes]))
        cuts = np.cumsum([part.seen.size for part in self.data])[:-1]

        def forward(step: Array) -> Array:
            parts = state.split(step)
            return np.concatenate([each.forward(parts).ravel() for each in passes])

        def backward(weights: Array) -> Array:
            pieces = np.split(weights, cuts)
            total = np.zeros(state.unknowns)
            for each, piece in zip(passes, pieces, strict=True):
                total += each.backward(piece.reshape(each.data.seen.shape)).flat()
            return total

        metric = AttentionMetric(state, passes)
        return Products(state.unknowns, forward, backward, metric.squares, metric.inverse)
