"""Second derivatives of a function on the sphere mean n² = 1 of which the part along n is not seen.

Split R^d = V + B. Points lie in B, derivatives are taken along V, outputs are read in B across the point:
these are orthogonal to every point of the stencil, so that nothing is lost. Along a great circle from n to a
unit v across it, the second derivative is D²F[v, v] - DF[n]/d: a Hessian on V up to a multiple of 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, complement

__all__ = ["Curvature", "SphereStencil", "curvature_queries", "measure_curvature"]

Function = Callable[[Array], Array]

# Σ w_i (f(+i) - 2 f(0) + f(-i)), by order of the truncation error
_SECOND = {2: np.ones(1), 4: np.array([4.0 / 3.0, -1.0 / 12.0])}


@dataclass(frozen=True)
class SphereStencil:
    """Second differences along great circles, at angles `step`, 2·step, ...: order·directions values."""

    step: float
    order: int

    @classmethod
    def for_jitter(cls, jitter: float, order: int) -> SphereStencil:
        """The angle at which truncation, angle^order, meets rounding, jitter/angle²."""
        return cls(float(np.clip(jitter, 1e-16, 0.1) ** (1.0 / (order + 2))), order)

    def along(self, function: Function, n: Array, values: Array, directions: Array) -> Array:
        """(D, out): second derivatives at one point n, whose value is known, along unit directions (D, d)."""
        weights, d = _SECOND[self.order], len(n)
        angles = self.step * np.arange(1.0, len(weights) + 1.0)
        moved = np.concatenate(
            [
                np.cos(a) * n + sign * np.sin(a) * np.sqrt(d) * directions
                for a in angles
                for sign in (1.0, -1.0)
            ]
        )
        around = function(moved).reshape(len(weights), 2, len(directions), -1).sum(axis=1) - 2.0 * values
        return np.asarray(np.einsum("s,sdo->do", weights, around) / (d * self.step**2))

    def mixed(self, function: Function, n: Array, pairs: tuple[Array, Array]) -> Array:
        """(D, out): D²F[a, b] for rows of two arrays of unit directions, a across b."""
        a, b = pairs
        up, down = (a + b) / np.sqrt(2.0), (a - b) / np.sqrt(2.0)
        found = self.along(function, n, np.zeros(1), np.concatenate([up, down]))  # what is at n cancels
        return np.asarray((found[: len(a)] - found[len(a) :]) / 2.0)


def curvature_queries(forms: float, width: int) -> int:
    """At most: 12 a pair of the q directions that it takes to tell so many forms, at as many points as show
    all of them."""
    q = min(int(2 + forms**0.5) + 2, max(width - 4, 2))
    return 12 * q * (q + 1) * (q * (q + 1) // max(width - q - 1, 3) + 4)


@dataclass(frozen=True, eq=False)
class Curvature:
    """frame: (d, d), orthonormal; V its first q columns, B the others. points: (P, d - q), coordinates in B.

    forms: (P, out, q, q), Hessians on V up to a multiple of 1; outputs are coordinates in B across the point.
    """

    frame: Array
    points: Array
    forms: Array

    @property
    def q(self) -> int:
        return int(self.forms.shape[-1])

    @property
    def along(self) -> Array:
        """V, (d, q)."""
        return self.frame[:, : self.q]

    @property
    def base(self) -> Array:
        """B, (d, d - q)."""
        return self.frame[:, self.q :]

    @property
    def rows(self) -> Array:
        """The points themselves, (P, d)."""
        return np.asarray(self.points @ self.base.T)

    def with_points(self, more: Curvature) -> Curvature:
        """The same with the points of another one in the same frame."""
        points, forms = (
            np.concatenate(pair) for pair in ((self.points, more.points), (self.forms, more.forms))
        )
        return Curvature(self.frame, points, forms)

    def outputs(self, place: int) -> Array:
        """(d - q, d - q): removes from outputs in B what is along a point."""
        point = self.points[place]
        return np.asarray(np.eye(len(point)) - np.outer(point, point) / (point @ point))

    def toward_base(
        self, function: Function, stencil: SphereStencil, rng: np.random.Generator
    ) -> tuple[Array, Array, Array, Array]:
        """D²F[v, e] for directions e of B across a point and one random v of V a point.

        (points (n,), v (n, q), e (n, d - q), second derivatives (n, d - q)); outputs are across the point and
        across e.
        """
        places, against, toward, seen = [], [], [], []
        for p, row in enumerate(self.rows):
            tangents = complement(self.points[p] / np.linalg.norm(self.points[p])).T
            v = rng.standard_normal(self.q)
            v /= np.linalg.norm(v)
            pairs = np.tile(self.along @ v, (len(tangents), 1)), tangents @ self.base.T
            mixed = stencil.mixed(function, row, pairs) @ self.base @ self.outputs(p)
            seen.append(mixed - (mixed * tangents).sum(axis=1, keepdims=True) * tangents)
            places.append(np.full(len(tangents), p))
            against.append(np.tile(v, (len(tangents), 1)))
            toward.append(tangents)
        return np.concatenate(places), np.concatenate(against), np.concatenate(toward), np.concatenate(seen)


def measure_curvature(
    function: Function, frame: Array, points: Array, q: int, stencil: SphereStencil
) -> Curvature:
    """Hessians on the first q columns of the frame, at points given by their coordinates in the others."""
    base, basis = frame[:, q:], frame[:, :q].T
    i, j = np.triu_indices(q)
    directions = np.where((i == j)[:, None], basis[i], (basis[i] + basis[j]) / np.sqrt(2.0))
    rows = points @ base.T
    values = function(rows)
    forms = np.empty((len(points), len(frame) - q, q, q))
    for p, row in enumerate(rows):
        seen = stencil.along(function, row, values[p], directions) @ base
        seen = seen - np.outer(seen @ points[p], points[p]) / (points[p] @ points[p])
        square = seen[i == j]
        mixed = np.where((i == j)[:, None], seen, seen - 0.5 * (square[i] + square[j]))
        forms[p][:, i, j] = forms[p][:, j, i] = mixed.T
    return Curvature(frame, points, forms)
