"""Many small weighted least-squares fits at once, each with the covariance of its solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens import Mask

__all__ = ["WeightedFits"]

# of the prior deviation: error bars below are taken as this, or QR in float64 loses the prior
_SHARPEST = 1e-15


@dataclass(frozen=True, eq=False)
class WeightedFits:
    """solutions: (n, r). roots: (n, r, r), upper triangular, with covariance (rootsᵀ roots)⁻¹.

    >>> fits = WeightedFits.of(np.eye(2)[None], np.array([[3.0, 4.0]]), np.array([[0.1, 0.2]]), prior=1e6)
    >>> fits.solutions.round(6), fits.deviations(np.eye(2)[None]).round(6)
    (array([[3., 4.]]), array([[0.1, 0.2]]))
    """

    solutions: Array
    roots: Array

    @classmethod
    def of(cls, design: Array, targets: Array, errors: Array, *, prior: float) -> WeightedFits:
        """Fits design (n, m, r) · x = targets (n, m), each row with its error bar in `errors`.

        prior: how far from zero x is before anything is measured. An infinite error bar leaves a row out.
        """
        n, _, r = design.shape
        weights = 1.0 / np.maximum(errors, _SHARPEST * prior)
        right = np.where(weights > 0.0, targets, 0.0) * weights
        order = np.argsort(-weights, axis=1, kind="stable")  # Householder QR is stable with heavy rows first
        rows = np.take_along_axis(design * weights[:, :, None], order[:, :, None], axis=1)
        system = np.concatenate([rows, np.broadcast_to(np.eye(r) / prior, (n, r, r))], axis=1)
        right = np.concatenate([np.take_along_axis(right, order, axis=1), np.zeros((n, r))], axis=1)
        q, roots = np.linalg.qr(system)
        projected = np.matmul(q.transpose(0, 2, 1), right[:, :, None])
        return cls(np.linalg.solve(roots, projected)[:, :, 0] if r else np.zeros((n, 0)), roots)

    def part(self, chosen: Mask) -> WeightedFits:
        """Some of the fits."""
        return WeightedFits(self.solutions[chosen], self.roots[chosen])

    def whitened(self, directions: Array) -> Array:
        """rootsᵀ⁻¹ d for directions (n, k, r), as (n, k, r): their scalar products are covariances."""
        if not directions.shape[2]:
            return directions
        solved = np.linalg.solve(self.roots.transpose(0, 2, 1), directions.transpose(0, 2, 1))
        return np.asarray(solved.transpose(0, 2, 1))

    def deviations(self, directions: Array) -> Array:
        """Standard deviation of d·x, (n, k)."""
        return np.asarray(np.linalg.norm(self.whitened(directions), axis=2))
