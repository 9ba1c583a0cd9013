"""An orthonormal set of rows in a subspace that all have the same product with the readout v."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array, norm

__all__ = ["EvenRows", "carrier_for", "columns_that_see", "even_rows_for"]

_HARDLY_SEEN = 0.05  # of the average product with v: below, more than one digit would be lost
_NOTHING = 1e-3  # of v outside the subspace: the direction of less is known too badly to add it


class EvenRows:
    """Rows a_i = basis·h_i + carrier, with h_i the rows of a reflection that spreads basisᵀv evenly over all
    of them.

    Every row then has the same a_i·v, nothing small is divided by, and the way back is the reflection itself.
    The whole space (basis None) is never stored: rows are built when asked for.

    >>> even = EvenRows(np.array([0.0, 3.0, 4.0]))
    >>> np.round(even.rows(0, 3) @ even.v / 5, 3)
    array([0.577, 0.577, 0.577])
    """

    def __init__(self, v: Array, basis: Array | None = None, carrier: Array | None = None) -> None:
        self.v = v
        self.basis = basis
        self.carrier = carrier
        visible = v if basis is None else basis.T @ v
        self.count = len(visible)
        self._normal = _reflector(visible)
        self._dense = None if basis is None else self._combine(basis)
        carried = 0.0 if carrier is None else float(carrier @ v)
        self.readout = norm(visible) / np.sqrt(self.count) + carried

    def rows(self, start: int, stop: int) -> Array:
        """Rows a_start .. a_stop as an array."""
        if self._dense is not None:
            return self._dense[start:stop]
        rows = -2.0 * np.outer(self._normal[start:stop], self._normal)
        rows[np.arange(stop - start), np.arange(start, stop)] += 1.0
        return rows if self.carrier is None else rows + self.carrier

    def forms_of(self, vector: Array) -> Array:
        """a_i·vector for every row."""
        if self._dense is not None:
            return self._dense @ vector
        forms = vector - 2.0 * self._normal * (self._normal @ vector)
        return forms if self.carrier is None else forms + self.carrier @ vector

    def coordinates(self, forms: Array) -> Array:
        """basisᵀ m from h_i·(basisᵀ m), for the rows of `forms` (n, count)."""
        return forms - 2.0 * np.outer(forms @ self._normal, self._normal)

    def _combine(self, basis: Array) -> Array:
        rows = basis.T - 2.0 * np.outer(self._normal, basis @ self._normal)
        return rows if self.carrier is None else rows + self.carrier


def even_rows_for(v: Array, basis: Array, *, rest_is_zero: bool) -> EvenRows:
    """Even rows of a subspace, with a carrier: a part of v outside it where W vanishes there, v itself where
    the subspace hardly sees v.

    >>> even_rows_for(np.array([0.0, 1.0]), np.array([[1.0], [0.0]]), rest_is_zero=False).carrier
    array([0., 1.])
    """
    return EvenRows(v, basis, carrier_for(v, basis, rest_is_zero=rest_is_zero))


def carrier_for(v: Array, basis: Array, *, rest_is_zero: bool) -> Array | None:
    """The unit vector to add to the rows of a subspace so that all of them see v; None where they do."""
    seen = basis.T @ v
    size = norm(v)
    if rest_is_zero:
        unseen = v - basis @ seen
        length = norm(unseen)
        return unseen / length if length > _NOTHING * size else None
    average = norm(seen) / np.sqrt(len(seen))
    return v / size if average < _HARDLY_SEEN * size / np.sqrt(len(v)) else None


def columns_that_see(project: Callable[[Array], Array], B: Array, direction: Array, least: float) -> Array:
    """project(B), for a linear `project` that needs columns b with |b·direction| >= least: where a column has
    less, the unit vector `direction` is added to it, and its own column taken off again.

    >>> columns_that_see(lambda B: 2.0 * B, np.eye(2), np.array([0.0, 1.0]), 0.5)
    array([[2., 0.],
           [0., 2.]])
    """
    unseen = np.abs(direction @ B) < least
    if not unseen.any():
        return project(B)
    lengths = np.linalg.norm(B[:, unseen] + direction[:, None], axis=0)
    longer = np.column_stack([np.where(unseen, 0.0, B), direction])
    longer[:, :-1][:, unseen] = (B[:, unseen] + direction[:, None]) / lengths
    found = project(longer)
    columns, own = found[:, :-1], found[:, -1:]
    columns[:, unseen] = columns[:, unseen] * lengths - own
    return columns


def _reflector(visible: Array) -> Array:
    """Unit normal of the reflection that takes `visible` to equal entries; zero when nothing has to be
    turned."""
    size = norm(visible)
    if size == 0.0:
        return np.zeros(len(visible))
    normal = visible / size - 1.0 / np.sqrt(len(visible))
    length = norm(normal)
    return normal / length if length > 1e-12 else np.zeros(len(visible))
