"""W of unknown rank from measurements with error bars, and the bar of the result."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import BoundedMeter
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.solvers.base import Announce, Solution
from unsoftmax.solvers.bases import FacingBasis, RandomBasis

__all__ = ["BoundedRangeFinder"]

_CHECKS = 6  # fresh forms that look for a missed direction
_PLAINLY = 8.0  # times the columns' errors: so much outside their span is plainly no error of theirs
_MISSING = 1.5  # so much beyond the bound means that one was missed
# repairs stop when the left factor is known no more than so many times worse than the right one, into which
# most of the queries went
_BALANCED = 1.5


@dataclass(frozen=True)
class BoundedRangeFinder:
    """Columns until one adds nothing beyond its error bar; the rest inside their span; then the worst-known
    directions once more.

    Few random columns span the range badly: an error of one is blown up in the direction that they share
    least. With the row space known (from the measurements inside the span), the direction with the largest
    such error is known too, and one more column there repairs it. `repairs`: how many of those at most.

    noise: the part of an error bar that an error typically fills; below it, a residual is not a direction.
    floor: a matrix of this norm is not worth finding; what is left out for it goes into the bound.
    within: orthonormal columns B (d×n); what is found is the matrix W·B·Bᵀ. None: a random basis of the whole
    space.
    """

    repairs: int = 2
    noise: float = 0.6
    floor: float = 0.0
    within: Array | None = None

    def solve(
        self, meter: BoundedMeter, rng: np.random.Generator, progress: Announce | None = None
    ) -> Solution:
        """W on the span of `within`, with a bound on its error."""
        B = self._basis(meter, rng) if self.within is None else self.within
        d, n = B.shape
        columns, errors = np.empty((d, 0)), np.empty(0)
        least = 0
        while columns.shape[1] < n:
            k = columns.shape[1]
            column, error = meter.measure(None, B[:, k : k + 1])
            spent = self._adds_nothing(
                columns, self._bars(errors, n), column[:, 0], float(self._bars(error, n)[0])
            )
            columns, errors = np.column_stack([columns, column]), np.append(errors, error)
            if spent and least <= k + 1 < n:
                beside = self._forms_beside(meter, rng, B, columns, errors)
                if (
                    beside.size_without(None)
                    > _PLAINLY * float(np.sqrt(n * np.mean(errors**2))) + 2.0 * self.floor
                ):
                    # this column told nothing by chance; that one does
                    B = _with_next(B, k + 1, beside.largest)
                    continue
                found = self._inside(meter, B, columns, errors, progress)
                unseen = beside.size_without(found.matrix)
                if unseen <= _MISSING * found.error or k + 2 > n:
                    return replace(found, error=max(found.error, 2.0 * unseen))
                least = k + 2  # a direction was missed: one more column, and the inside again
        return Solution(
            Dense(columns @ B.T), float(np.linalg.norm(errors)), _rank(columns, errors, self.noise), True
        )

    def _basis(self, meter: BoundedMeter, rng: np.random.Generator) -> Array:
        d = meter.width
        basis = RandomBasis(d, rng) if meter.facing is None else FacingBasis(d, rng, meter.facing)
        return basis.columns(0, d)

    def _forms_beside(
        self, meter: BoundedMeter, rng: np.random.Generator, B: Array, columns: Array, errors: Array
    ) -> _Beside:
        """A few forms beside the columns that were measured, on both sides."""
        d, n = B.shape
        k = columns.shape[1]
        span = self._span(columns, errors, n)
        lefts, rights, forms = [], [], []
        for _ in range(_CHECKS):
            left, right = rng.standard_normal((d, 1)), B[:, k:] @ rng.standard_normal((n - k, 1))
            left = left - span @ (span.T @ left)
            lefts.append(left / np.linalg.norm(left))
            rights.append(right / np.linalg.norm(right))
            forms.append(float(meter.measure(lefts[-1], rights[-1], length=0.0)[0][0, 0]))
        return _Beside(
            np.column_stack(lefts).T, np.column_stack(rights).T, np.array(forms), float(np.sqrt(d * n))
        )

    def _bars(self, errors: Array, n: int) -> Array:
        """Errors of columns, with what the matrix that is left out may add to each."""
        return np.asarray(np.hypot(errors, 1.5 * self.floor / np.sqrt(n)))

    def _span(self, columns: Array, errors: Array, n: int) -> Array:
        """An orthonormal basis of what the columns span beyond their error bars."""
        rank = _rank(columns, self._bars(errors, n), self.noise)
        return np.linalg.svd(columns * (np.median(errors) / errors), full_matrices=False)[0][:, :rank]

    def _adds_nothing(self, columns: Array, errors: Array, column: Array, error: float) -> bool:
        if not columns.shape[1]:
            return float(np.linalg.norm(column)) < self.noise * error
        weights = np.linalg.lstsq(columns, column, rcond=None)[0]
        rest = float(np.linalg.norm(column - columns @ weights))
        return rest < self.noise * float(np.sqrt(error**2 + np.sum((weights * errors) ** 2)))

    def _inside(
        self, meter: BoundedMeter, B: Array, columns: Array, errors: Array, progress: Announce | None
    ) -> Solution:
        d, n = B.shape
        k = columns.shape[1]
        span = self._span(columns, errors, n)
        rank = span.shape[1]
        if rank == 0:
            typical = float(np.sqrt(np.mean(errors**2) * n)) + self.floor
            return Solution(Factors(np.zeros((d, 0)), np.zeros((d, 0))), typical, 0, False)
        if progress is not None:
            progress((n - k) * (rank + 1))
        rest, rest_errors = meter.measure(span, B[:, k:], rest_is_zero=True)
        inside = np.column_stack([span.T @ columns, rest])
        row_space = np.linalg.svd(inside, full_matrices=False)[2].T  # n×rank, in the coordinates of B
        seen = row_space[:k]  # coordinates of the measured columns
        for _ in range(min(self.repairs, rank)):
            precision = seen / self._bars(errors, n)[:, None]
            if float(np.linalg.norm(np.linalg.pinv(precision))) < _BALANCED * float(
                np.linalg.norm(rest_errors)
            ):
                break
            worst = np.linalg.svd(precision)[2][-1]
            length = float(np.linalg.norm(inside @ (row_space @ worst)))
            column, error = meter.measure(None, (B @ (row_space @ worst))[:, None], length=length)
            columns, errors, seen = (
                np.column_stack([columns, column]),
                np.append(errors, error),
                np.vstack([seen, worst]),
            )
        bars = self._bars(errors, n)
        precision = seen / bars[:, None]
        left = np.asarray(np.linalg.lstsq(precision, (columns / bars).T, rcond=None)[0].T, dtype=np.float64)
        of_left = float(np.linalg.norm(np.linalg.pinv(precision)))
        total = float(np.sqrt(of_left**2 + np.sum(rest_errors**2) + np.sum(errors[:k] ** 2) + self.floor**2))
        return Solution(Factors(left, np.asarray(B @ row_space, dtype=np.float64)), total, rank, False)


@dataclass(frozen=True)
class _Beside:
    """Fresh forms leftᵀW·right; their root mean square times `scale` is the size of W as they see it."""

    left: Array
    right: Array
    forms: Array
    scale: float

    @property
    def largest(self) -> Array:
        """The right vector of the largest form."""
        return np.asarray(self.right[int(np.abs(self.forms).argmax())])

    def size_without(self, matrix: Matrix | None) -> float:
        """Size of W, or of what is left of it without `matrix`."""
        known = 0.0 if matrix is None else np.einsum("nd,nd->n", self.left, matrix.apply(self.right))
        return self.scale * float(np.sqrt(np.mean((self.forms - known) ** 2)))


def _with_next(B: Array, k: int, column: Array) -> Array:
    """The same span in orthonormal columns of which the one after the first k is `column`."""
    rest = np.linalg.qr(np.column_stack([column, B[:, k:]]))[0][:, : B.shape[1] - k]
    rest[:, 0] = column
    return np.column_stack([B[:, :k], rest])


def _rank(columns: Array, errors: Array, noise: float) -> int:
    """Singular values above what the error bars make of nothing."""
    if not len(errors):
        return 0
    values = np.linalg.svd(columns, compute_uv=False)
    return int((values > noise * np.sqrt(np.mean(errors**2))).sum())
