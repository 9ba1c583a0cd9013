"""First and second derivatives of a function on the sphere mean n² = 1, at points of one circle, along
directions across it.

At a point n of the circle and a unit direction w orthogonal to it, n·cos t + √d·w·sin t stays on the sphere.
Its second
difference is d·wᵀHw less a term that does not depend on w, so the measured matrices are the Hessians plus
multiples of the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["CircleDerivatives", "measure_circle"]

# radians: errors of second differences are 1e-7 (the step squared) and 4e-7 (rounding over the step squared)
_STEP = 3e-4
_TURN = 0.3  # of a spacing: the points are no mirror images of each other in any special direction

Function = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class CircleDerivatives:
    """frame: orthonormal (d, d); the circle is in the first two columns, directions are the next ones.

    angles (P,), points (P, d). values (P, out). hessians (P, out, q, q), gradients (P, q, out) along the
    first q directions.
    """

    frame: Array
    angles: Array
    values: Array
    hessians: Array
    gradients: Array

    @property
    def directions(self) -> Array:
        """(d, q)"""
        return self.frame[:, 2 : 2 + self.hessians.shape[2]]

    @property
    def rest(self) -> Array:
        """Directions that were not differentiated, (d, d - 2 - q)."""
        return self.frame[:, 2 + self.hessians.shape[2] :]

    @property
    def on_circle(self) -> Array:
        """Coordinates (P, 2) of the points in the plane of the circle."""
        turned = np.column_stack([np.cos(self.angles), np.sin(self.angles)])
        return np.asarray(np.sqrt(len(self.frame)) * turned)

    @property
    def points(self) -> Array:
        """(P, d)"""
        return np.asarray(self.on_circle @ self.frame[:, :2].T)

    def further_gradients(self, function: Function) -> Array:
        """Gradients (P, d - 2 - q, out) along the rest, by central differences: 2 values each."""
        return np.stack([_gradients(function, point, self.rest) for point in self.points])


def measure_circle(
    function: Function, frame: Array, n_points: int, q: int, before: CircleDerivatives | None = None
) -> CircleDerivatives:
    """Derivatives at `n_points` points along q directions; what `before` holds, for fewer directions, is not
    asked again."""
    angles = 2.0 * np.pi * (np.arange(n_points) + _TURN) / n_points
    d = len(frame)
    known = 0
    if before is not None and len(before.angles) == n_points and before.hessians.shape[2] <= q:
        known = before.hessians.shape[2]
    points = np.sqrt(d) * np.column_stack([np.cos(angles), np.sin(angles)]) @ frame[:, :2].T
    values = before.values if before is not None and known else function(points)
    out = values.shape[1]
    hessians, gradients = np.zeros((n_points, out, q, q)), np.zeros((n_points, q, out))
    if before is not None and known:
        hessians[:, :, :known, :known], gradients[:, :known] = before.hessians, before.gradients
    directions = frame[:, 2 : 2 + q]
    for p, point in enumerate(points):
        _fill(function, point, values[p], directions, known, hessians[p], gradients[p])
    return CircleDerivatives(frame, angles, values, hessians, gradients)


def _fill(
    function: Function,
    point: Array,
    value: Array,
    directions: Array,
    known: int,
    hessian: Array,
    gradient: Array,
) -> None:
    """Adds the rows and columns from `known` on."""
    d, q = directions.shape
    i, j = np.triu_indices(q)
    new = j >= known
    i, j = i[new], j[new]
    along = np.where((i == j)[:, None], directions.T[i], (directions.T[i] + directions.T[j]) / np.sqrt(2.0))
    up, down = _pair(function, point, along)
    second = (up + down - 2.0 * value) / (d * _STEP**2)
    diagonal = i == j
    hessian[:, i[diagonal], i[diagonal]] = second[diagonal].T
    gradient[i[diagonal]] = ((up - down) / (2.0 * _STEP * np.sqrt(d)))[diagonal]
    own = np.einsum("oii->io", hessian)
    mixed = ~diagonal
    entries = second[mixed] - (own[i[mixed]] + own[j[mixed]]) / 2.0
    hessian[:, i[mixed], j[mixed]] = entries.T
    hessian[:, j[mixed], i[mixed]] = entries.T


def _gradients(function: Function, point: Array, directions: Array) -> Array:
    if not directions.shape[1]:
        return np.zeros((0, len(point)))
    up, down = _pair(function, point, directions.T)
    return np.asarray((up - down) / (2.0 * _STEP * np.sqrt(len(point))))


def _pair(function: Function, point: Array, along: Array) -> tuple[Array, Array]:
    """Values a step along and against every direction."""
    radius = np.sqrt(len(point))
    moved = np.concatenate(
        [np.cos(_STEP) * point + sign * np.sin(_STEP) * radius * along for sign in (1.0, -1.0)]
    )
    up, down = np.split(function(moved), 2)
    return up, down
