"""Rows of W_h along the other heads' readouts: isolation cannot see them, general pairs can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock, TwoRowFit
from unsoftmax.solvers.head_fits.two_row_preconditioner import HeadSides
from unsoftmax.solvers.least_squares.joint_refinement import (
    Inverse,
    Linearisation,
    Products,
    RefinementOptions,
    refine,
)

__all__ = ["fit_cross_rows"]

_RIDGE = 1e-6  # relative: first rows of the fit may leave a combination of the readouts out
# unknowns up to which JᵀJ is held: it costs as many products as there are unknowns
_OPTIONS = RefinementOptions(
    iterations=15, damping=1e-3, dense_limit=200, inner_iterations=60, inner_tolerance=1e-2
)


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
        whole = self.fit.linearise(heads)
        shape = (heads.heads, heads.K.shape[1], self.others.shape[1])
        still = np.zeros_like(heads.Q), np.zeros_like(heads.v), 0.0

        def forward(step: Array) -> Array:
            return whole.forward(heads.joined(step.reshape(shape) @ self.others, *still))

        def backward(residual: Array) -> Array:
            return np.asarray(
                heads.split(whole.backward(residual))[0] @ self.others.transpose(0, 2, 1)
            ).ravel()

        sides = [_sides(head, others) for head, others in zip(whole.sides, self.others, strict=True)]
        squares = np.array([np.outer(np.diag(ranks), np.diag(rows)) for ranks, rows in sides])
        return Products(squares.size, forward, backward, squares.ravel(), lambda _: _inverse(sides, shape))

    def moved(self, heads: HeadFactors, step: Array) -> HeadFactors:
        changes = step.reshape(heads.heads, heads.K.shape[1], -1)
        return replace(heads, K=heads.K + changes @ self.others)


def _sides(head: HeadSides, others: Array) -> tuple[Array, Array]:
    """JᵀJ of one head's unknowns, nearly, on the side of ranks and on that of the other readouts."""
    return head.queries / max(head.mass, 1e-300), others @ head.first @ others.T


def _inverse(sides: list[tuple[Array, Array]], shape: tuple[int, int, int]) -> Inverse:
    inverses = [tuple(_ridged_inverse(side) for side in pair) for pair in sides]

    def apply(vector: Array) -> Array:
        changes = vector.reshape(shape)
        found = [ranks @ change @ rows for (ranks, rows), change in zip(inverses, changes, strict=True)]
        return np.asarray(found).ravel()

    return apply


def _ridged_inverse(side: Array) -> Array:
    ridge = _RIDGE * float(np.trace(side)) / len(side) + 1e-300
    return np.asarray(np.linalg.inv(side + ridge * np.eye(len(side))))


def fit_cross_rows(heads: HeadFactors, others: Sequence[Array], blocks: Sequence[AnswerBlock]) -> HeadFactors:
    """others: for every head, a basis of the other readouts' span."""
    if heads.heads == 1:
        return heads
    return refine(_CrossRows(TwoRowFit.of(blocks), np.array(others)), heads, _OPTIONS).state
