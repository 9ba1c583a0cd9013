"""First and second derivatives of a function on the sphere mean n² = 1, at points of one circle, along
directions across it.

At a point n of the circle and a unit direction w orthogonal to it, n·cos t + √d·w·sin t stays on the sphere.
Its second difference is d·wᵀHw less a term that does not depend on w, so the measured matrices are the
Hessians plus multiples of the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.precision import FLOAT64, Differences

__all__ = ["CircleDerivatives", "measure_circle"]

# radians between a point and the next, the golden section of the circle: any number of points is spread
# evenly, and no
# two are opposite, which would tell the same, because silu'(-a) = 1 - silu'(a)
_TURN = np.pi * (3.0 - np.sqrt(5.0))

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
    differences: Differences

    @property
    def across(self) -> Array:
        """The Hessians (P, d - 2, q, q) of the outputs across the plane of the circle: a value is known worse
        along its point than across it, and all points are near that plane."""
        return np.asarray(np.einsum("ok,poij->pkij", self.frame[:, 2:], self.hessians))

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
        """Gradients (P, d - 2 - q, out) along the rest, by central differences."""
        if not self.rest.shape[1]:
            return np.zeros((len(self.angles), 0, len(self.frame)))
        stencils = [_Stencil(function, point, self.differences) for point in self.points]
        radius = np.sqrt(len(self.frame))
        return np.stack([stencil(self.rest.T, np.zeros(1))[0] / radius for stencil in stencils])


def measure_circle(
    function: Function,
    frame: Array,
    n_points: int,
    q: int,
    before: CircleDerivatives | None = None,
    differences: Differences = FLOAT64.differences,
) -> CircleDerivatives:
    """Derivatives at `n_points` points along q directions; what `before` holds, for fewer points and
    directions, is not asked again."""
    angles = _TURN * np.arange(n_points)
    d = len(frame)
    points = np.sqrt(d) * np.column_stack([np.cos(angles), np.sin(angles)]) @ frame[:, :2].T
    old, known = (0, 0) if before is None else (len(before.angles), before.hessians.shape[2])
    values = np.empty((0, d)) if before is None else before.values
    if old < n_points:
        values = np.concatenate([values, function(points[old:])])
    hessians, gradients = (
        np.zeros((n_points, values.shape[1], q, q)),
        np.zeros((n_points, q, values.shape[1])),
    )
    if before is not None:
        hessians[:old, :, :known, :known], gradients[:old, :known] = before.hessians, before.gradients
    directions = frame[:, 2 : 2 + q]
    for p, point in enumerate(points):
        stencil = _Stencil(function, point, differences)
        _fill(stencil, values[p], directions, known if p < old else 0, hessians[p], gradients[p])
    return CircleDerivatives(frame, angles, values, hessians, gradients, differences)


@dataclass(frozen=True, eq=False)
class _Stencil:
    """Derivatives along great circles through one point."""

    function: Function
    point: Array
    differences: Differences

    def __call__(self, along: Array, value: Array) -> tuple[Array, Array]:
        """First and second derivative along every direction; value: at the point."""
        step = self.differences.step
        turns = (step, -step, 2.0 * step, -2.0 * step) if self.differences.fine else (step, -step)
        radius = np.sqrt(len(self.point))
        moved = [np.cos(turn) * self.point + np.sin(turn) * radius * along for turn in turns]
        up, down, *further = np.split(self.function(np.concatenate(moved)), len(turns))
        if not further:
            return (up - down) / (2.0 * step), (up + down - 2.0 * value) / step**2
        far_up, far_down = further
        first = (8.0 * (up - down) - (far_up - far_down)) / (12.0 * step)
        second = (16.0 * (up + down) - (far_up + far_down) - 30.0 * value) / (12.0 * step**2)
        return first, second


def _fill(
    stencil: _Stencil, value: Array, directions: Array, known: int, hessian: Array, gradient: Array
) -> None:
    """Adds the rows and columns from `known` on."""
    d, q = directions.shape
    i, j = np.triu_indices(q)
    new = j >= known
    i, j = i[new], j[new]
    along = np.where((i == j)[:, None], directions.T[i], (directions.T[i] + directions.T[j]) / np.sqrt(2.0))
    if not len(along):
        return
    first, second = stencil(along, value)
    second = second / d
    diagonal = i == j
    hessian[:, i[diagonal], i[diagonal]] = second[diagonal].T
    gradient[i[diagonal]] = first[diagonal] / np.sqrt(d)
    own = np.einsum("oii->io", hessian)
    mixed = ~diagonal
    entries = second[mixed] - (own[i[mixed]] + own[j[mixed]]) / 2.0
    hessian[:, i[mixed], j[mixed]] = entries.T
    hessian[:, j[mixed], i[mixed]] = entries.T
