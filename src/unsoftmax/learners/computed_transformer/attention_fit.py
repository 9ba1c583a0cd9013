"""Attention before a known network, fitted to answers: scores, and the factor of a skip connection.

With G the network that single rows show, f(X) = G(ρ Σ α_i x_i + (1 - ρ) x_N), where ρ = 1/(1 + residual).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.base import softmax
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian

__all__ = ["Attention", "AttentionFit"]


@dataclass(frozen=True)
class Attention:
    """matrix: [W w0], (d, d + 1). share: ρ."""

    matrix: Array
    share: float

    @property
    def vector(self) -> Array:
        """All of it, as a step changes it."""
        return np.append(self.matrix.ravel(), self.share)

    @classmethod
    def of(cls, vector: Array, width: int) -> Attention:
        """The reverse."""
        return cls(vector[:-1].reshape(width, width + 1), float(vector[-1]))


@dataclass(frozen=True)
class AttentionFit:
    """rows: sequences by length, (n, N, d) each. answers, and weights in which rounding is one: all in one
    array."""

    folds: CanonicalNetwork
    rows: tuple[Array, ...]
    answers: Array
    weights: Array

    def predict(self, state: Attention, folds: CanonicalNetwork | None = None) -> Array:
        """What the target answers, with this network or another one."""
        network = self.folds if folds is None else folds
        return np.concatenate([network(_mixed(state, rows)[1]) for rows in self.rows])

    def residual(self, state: Attention, /) -> Array:
        return np.asarray(self.weights * (self.predict(state) - self.answers))

    def moved(self, state: Attention, step: Array, /) -> Attention:
        return Attention.of(state.vector + step, state.matrix.shape[0])

    def linearise(self, state: Attention, /) -> DenseJacobian:
        parts = []
        for rows in self.rows:
            alpha, z = _mixed(state, rows)
            slopes = _gradients(self.folds, z)
            mean = np.einsum("bn,bnd->bd", alpha, rows)
            moved = state.share * alpha * np.einsum("bnd,bd->bn", rows - mean[:, None], slopes)
            keys = np.einsum("bn,bnd->bd", moved, rows)
            asking = np.column_stack([rows[:, -1], np.ones(len(rows))])
            by_scores = (keys[:, :, None] * asking[:, None]).reshape(len(rows), -1)
            parts.append(np.column_stack([by_scores, ((mean - rows[:, -1]) * slopes).sum(axis=1)]))
        return DenseJacobian(self.weights[:, None] * np.concatenate(parts))


def _mixed(state: Attention, rows: Array) -> tuple[Array, Array]:
    """(α (n, N), what the network gets (n, d))."""
    last = rows[:, -1]
    scores = np.einsum("bnd,bd->bn", rows, last @ state.matrix[:, :-1].T + state.matrix[:, -1])
    alpha = softmax(scores)
    mean = np.einsum("bn,bnd->bd", alpha, rows)
    return alpha, state.share * mean + (1.0 - state.share) * last


def _gradients(folds: CanonicalNetwork, points: Array) -> Array:
    return np.asarray((folds.signs * np.sign(folds.sides(points))) @ folds.normals + folds.linear)
