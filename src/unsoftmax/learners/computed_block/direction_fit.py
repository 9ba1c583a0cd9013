"""A network of which only directions are seen: the inner weights move, the outer ones are solved for exactly.

Behind a last norm a value r(u) = Θ·features(u) shows as n = r/|r| alone. (1 - n nᵀ)Θ·features = 0 is linear
in Θ, and one more equation, that the mean of n·r is one, keeps Θ from vanishing. So the outer layer, with the
linear part beside it, is eliminated at every step (variable projection), as where values are seen whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import solve_triangular
from unsoftmax.models.parts import Activation
from unsoftmax.solvers.least_squares.joint_refinement import Inverse, Linearisation

__all__ = ["DirectionFit"]

# of the equation for the mean length, over those of single points: it holds to the square of what they leave
_LENGTH = 10.0
_RIDGE = 1e-12  # of the mean diagonal of the normal matrix: outer weights of neurons that are nearly alike


@dataclass(frozen=True)
class DirectionFit:
    """Least squares for directions (n, m), unit vectors, of features(inner)·weights at points (n, k).

    State: inner (J, k + 1). The features are φ(a_j·x + b_j), x itself and a constant.
    """

    activation: Activation
    points: Array
    directions: Array

    @property
    def outputs(self) -> int:
        """Numbers that a point fixes: a direction has one fewer than entries."""
        return int(self.directions.shape[1]) - 1

    def features(self, inner: Array) -> Array:
        """(n, J + k + 1)."""
        X = np.column_stack([self.points, np.ones(len(self.points))])
        return np.column_stack([self.activation(X @ inner.T), X])

    def weights(self, inner: Array) -> Array:
        """(J + k + 1, m): of the neurons, of the linear part, and the constant."""
        return self._solved(inner).weights

    def _solved(self, inner: Array) -> _Solved:
        return _Solved(self.features(inner), self.directions)

    def residual(self, inner: Array, /) -> Array:
        try:
            return self._solved(inner).residual
        except np.linalg.LinAlgError:  # a step so long that activations overflow
            return np.full(self.directions.size + 1, np.inf)

    def moved(self, inner: Array, step: Array, /) -> Array:
        return np.asarray(inner + step.reshape(inner.shape))

    def linearise(self, inner: Array, /) -> Linearisation:
        X = np.column_stack([self.points, np.ones(len(self.points))])
        solved = self._solved(inner)
        return _DirectionJacobian(X, self.activation.first(X @ inner.T), solved.weights[: len(inner)], solved)


class _Solved:
    """The outer weights that fit best: D·vec(Θ) = e, D one row for each entry of (1 - n nᵀ)Θ·features, and
    one for the mean of n·Θ·features."""

    def __init__(self, features: Array, directions: Array) -> None:
        self.directions = directions
        self.count = len(features)
        self._scale = np.sqrt((features**2).mean(axis=0)) + 1e-300
        self.features = features / self._scale
        self.along = (directions[:, :, None] * self.features[:, None]).reshape(self.count, -1)
        self.mean = self.along.sum(axis=0) * (_LENGTH / np.sqrt(self.count))
        normal = np.kron(np.eye(directions.shape[1]), self.features.T @ self.features)
        normal += np.outer(self.mean, self.mean) - self.along.T @ self.along
        if not np.isfinite(normal).all():
            raise np.linalg.LinAlgError("activations overflow")
        normal += _RIDGE * np.trace(normal) / len(normal) * np.eye(len(normal))
        self.root = np.linalg.cholesky(normal)

    @cached_property
    def _theta(self) -> Array:
        wanted = _LENGTH * np.sqrt(self.count)
        return self._inverse(self.mean * wanted).reshape(self.directions.shape[1], -1)

    @property
    def weights(self) -> Array:
        return np.asarray((self._theta / self._scale).T)

    @cached_property
    def residual(self) -> Array:
        left = self.rows(self.features @ self._theta.T)
        left[-1] -= _LENGTH * np.sqrt(self.count)
        return left

    def _inverse(self, right: Array) -> Array:
        half = solve_triangular(self.root, right, lower=True)
        return np.asarray(solve_triangular(self.root, half, lower=True, trans=1))

    def rows(self, values: Array) -> Array:
        """(n·m + 1,): what of values (n, m) is across the directions, and their mean along them."""
        length = (values * self.directions).sum(axis=1)
        across = values - length[:, None] * self.directions
        return np.append(across.ravel(), length.sum() * (_LENGTH / np.sqrt(self.count)))

    def values(self, residual: Array) -> Array:
        """(n, m): the transpose of `rows`."""
        across = residual[:-1].reshape(self.count, -1)
        length = (across * self.directions).sum(axis=1) - residual[-1] * (_LENGTH / np.sqrt(self.count))
        return np.asarray(across - length[:, None] * self.directions)

    def beside(self, residual: Array) -> Array:
        """What no outer weights explain."""
        right = (self.values(residual).T @ self.features).ravel()
        theta = self._inverse(right).reshape(self.directions.shape[1], -1)
        return np.asarray(residual - self.rows(self.features @ theta.T))


@dataclass(frozen=True)
class _DirectionJacobian:
    """Leaves out how the projection moves, which vanishes with the residual."""

    points: Array
    slopes: Array
    outer: Array
    solved: _Solved

    @property
    def unknowns(self) -> int:
        return int(self.slopes.shape[1] * self.points.shape[1])

    def forward(self, step: Array, /) -> Array:
        inner = step.reshape(-1, self.points.shape[1])
        values = (self.slopes * (self.points @ inner.T)) @ self.outer
        return self.solved.beside(self.solved.rows(values))

    def backward(self, residual: Array, /) -> Array:
        values = self.solved.values(self.solved.beside(residual))
        return np.asarray(((values @ self.outer.T * self.slopes).T @ self.points).ravel())

    def normal(self) -> Array:
        solved, (n, J), width = self.solved, self.slopes.shape, self.points.shape[1]
        plain = (self.slopes[:, :, None] * self.points[:, None]).reshape(n, -1)
        lengths = solved.directions @ self.outer.T  # of each neuron's output, along the direction
        along = ((self.slopes * lengths)[:, :, None] * self.points[:, None]).reshape(n, -1)
        mean = along.sum(axis=0) * (_LENGTH / np.sqrt(n))
        same = (plain.T @ plain).reshape(J, width, J, width) * (self.outer @ self.outer.T)[:, None, :, None]
        mixed = (plain.T @ solved.features).reshape(J, width, 1, -1) * self.outer[:, None, :, None]
        crossed = mixed.reshape(J * width, -1) - along.T @ solved.along + np.outer(mean, solved.mean)
        explained = solve_triangular(solved.root, crossed.T, lower=True)
        whole = same.reshape(J * width, -1) - along.T @ along + np.outer(mean, mean)
        return np.asarray(whole - explained.T @ explained)

    def diagonal(self) -> Array:
        return np.diag(self.normal())

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return None
