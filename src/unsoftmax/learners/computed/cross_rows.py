"""Rows of W_h along the other heads' readouts: isolation cannot see them, general pairs can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, expit
from unsoftmax.solvers.head_factors import HeadFactors
from unsoftmax.solvers.joint_refinement import DenseJacobian, Linearisation, RefinementOptions, refine
from unsoftmax.solvers.two_row_fit import AnswerBlock, TwoRowFit

__all__ = ["fit_cross_rows"]


@dataclass(frozen=True)
class _CrossRows:
    """Unknowns Y_h (r, H−1) in K_h + Y_h M_h, where M_h (H−1, d) spans the other readouts. Everything else is
    held.
    """

    fit: TwoRowFit
    others: Array

    def residual(self, heads: HeadFactors) -> Array:
        return self.fit.residual(heads)

    def linearise(self, heads: HeadFactors) -> Linearisation:
        parts = []
        for block in self.fit.blocks:
            columns = []
            for h in range(heads.heads):
                queries = block.asking @ heads.Q[h].T
                share = expit(block.crossed(block.A @ heads.K[h].T, queries))
                sloped = block.weights * share * (1.0 - share) * (block.A @ heads.v[h])[:, None]
                along = block.A @ self.others[h].T
                pattern = "ij,jr,im->ijrm" if block.grid else "ij,ir,im->ijrm"
                columns.append(
                    np.einsum(pattern, sloped, queries, along, optimize=True).reshape(block.answers.size, -1)
                )
            parts.append(np.concatenate(columns, axis=1))
        return DenseJacobian(np.concatenate(parts))

    def moved(self, heads: HeadFactors, step: Array) -> HeadFactors:
        changes = step.reshape(heads.heads, heads.K.shape[1], -1)
        return replace(heads, K=heads.K + np.einsum("hrm,hmd->hrd", changes, self.others))


def fit_cross_rows(heads: HeadFactors, others: Sequence[Array], blocks: Sequence[AnswerBlock]) -> HeadFactors:
    """others: for every head, a basis of the other readouts' span."""
    if heads.heads == 1:
        return heads
    problem = _CrossRows(TwoRowFit.of(blocks), np.array(others))
    return refine(problem, heads, RefinementOptions(iterations=15, damping=1e-3)).state
