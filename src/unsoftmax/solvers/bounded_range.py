"""W of unknown rank from measurements with error bars, and the bar of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.meters import BoundedMeter
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.oracles import Array

__all__ = ["BoundedRangeFinder", "Solution"]

_CHECKS = 6  # fresh forms that look for a missed direction
_MISSING = 1.5  # so much beyond the bound means that one was missed
_BALANCED = 1.2  # repairs stop when the left factor is known about as well as the right one


@dataclass(frozen=True)
class Solution:
    """A matrix, a bound on the Frobenius norm of its error, and its rank as far as the error bars tell.

    complete: no assumption on the rank was needed, so the bound follows from the error bars alone.
    """

    matrix: Matrix
    error: float
    rank: int
    complete: bool

    def plus_column(self, column: Array, direction: Array, error: float) -> Solution:
        """The matrix plus column·directionᵀ, for a direction orthogonal to all that was solved for."""
        total = float(np.hypot(self.error, error))
        if isinstance(self.matrix, Factors):
            joint = Factors(np.column_stack([self.matrix.left, column]), np.column_stack([self.matrix.right, direction]))
            if joint.left.shape[1] < joint.width:
                return Solution(joint, total, self.rank + 1, self.complete)
        return Solution(Dense(self.matrix.dense() + np.outer(column, direction)), total, self.rank + 1, self.complete)


@dataclass(frozen=True)
class BoundedRangeFinder:
    """Columns until one adds nothing beyond its error bar; the rest inside their span; then the worst-known directions once more.

    Few random columns span the range badly: an error of one is blown up in the direction that they share least. With the row space
    known (from the measurements inside the span), the direction with the largest such error is known too, and one more column there
    repairs it. `repairs`: how many of those at most.

    noise: the part of an error bar that an error typically fills; below it, a residual is no new direction.
    floor: a matrix of this norm is no direction worth finding; what is left out for it goes into the bound.
    """

    repairs: int = 2
    noise: float = 0.6
    floor: float = 0.0

    def solve(self, meter: BoundedMeter, rng: np.random.Generator, B: Array, announce: Callable[[int], None] | None = None) -> Solution:
        """W on the span of the orthonormal columns of B (d×n): the matrix W·B·Bᵀ."""
        d, n = B.shape
        columns, errors = np.empty((d, 0)), np.empty(0)
        least = 0
        while columns.shape[1] < n:
            k = columns.shape[1]
            column, error = meter.measure(None, B[:, k : k + 1])
            spent = self._adds_nothing(columns, errors, column[:, 0], float(np.hypot(error[0], 1.5 * self.floor / np.sqrt(n))))
            columns, errors = np.column_stack([columns, column]), np.append(errors, error)
            if spent and least <= k + 1 < n:
                found = self._inside(meter, B, columns, errors, announce)
                unseen = self._unseen(meter, rng, B, k + 1, found)
                if unseen <= _MISSING * found.error or k + 2 > n:
                    return replace(found, error=max(found.error, 2.0 * unseen))
                least = k + 2  # a direction was missed: one more column, and the inside again
        return Solution(Dense(columns @ B.T), float(np.linalg.norm(errors)), _rank(columns, errors, self.noise), True)

    def _unseen(self, meter: BoundedMeter, rng: np.random.Generator, B: Array, k: int, found: Solution) -> float:
        """Size of the error as fresh forms see it, beside the span that was found and the columns that were measured."""
        assert isinstance(found.matrix, Factors)
        span = np.linalg.qr(found.matrix.left)[0]
        forms = []
        for _ in range(_CHECKS):
            left = rng.standard_normal((B.shape[0], 1))
            right = B[:, k:] @ rng.standard_normal((B.shape[1] - k, 1))
            left = left - span @ (span.T @ left)
            left, right = left / np.linalg.norm(left), right / np.linalg.norm(right)
            expected = left.T @ found.matrix.apply(right.T).T
            forms.append(float((meter.measure(left, right, length=0.0)[0] - expected)[0, 0]))
        return float(np.sqrt(np.mean(np.square(forms)) * B.shape[0] * B.shape[1]))

    def _adds_nothing(self, columns: Array, errors: Array, column: Array, error: float) -> bool:
        if not columns.shape[1]:
            return float(np.linalg.norm(column)) < self.noise * error
        weights = np.linalg.lstsq(columns, column, rcond=None)[0]
        rest = float(np.linalg.norm(column - columns @ weights))
        return rest < self.noise * float(np.sqrt(error**2 + np.sum((weights * errors) ** 2)))

    def _inside(self, meter: BoundedMeter, B: Array, columns: Array, errors: Array, announce: Callable[[int], None] | None) -> Solution:
        d, n = B.shape
        k = columns.shape[1]
        rank = _rank(columns, np.hypot(errors, 1.5 * self.floor / np.sqrt(n)), self.noise)
        if rank == 0:
            typical = float(np.sqrt(np.mean(errors**2) * n)) + self.floor
            return Solution(Factors(np.zeros((d, 0)), np.zeros((d, 0))), typical, 0, False)
        if announce is not None:
            announce((n - k) * (rank + 1))
        weighted = columns * (np.median(errors) / errors)
        span = np.linalg.svd(weighted, full_matrices=False)[0][:, :rank]
        rest, rest_errors = meter.measure(span, B[:, k:], rest_is_silent=True)
        inside = np.column_stack([span.T @ columns, rest])
        row_space = np.linalg.svd(inside, full_matrices=False)[2].T  # n×rank, in the coordinates of B
        seen = row_space[:k]  # coordinates of the measured columns
        for _ in range(min(self.repairs, rank)):
            precision = seen / errors[:, None]
            if float(np.linalg.norm(np.linalg.pinv(precision))) < _BALANCED * float(np.linalg.norm(rest_errors)):
                break
            worst = np.linalg.svd(precision)[2][-1]
            length = float(np.linalg.norm(inside @ (row_space @ worst)))
            column, error = meter.measure(None, (B @ (row_space @ worst))[:, None], length=length)
            columns, errors, seen = np.column_stack([columns, column]), np.append(errors, error), np.vstack([seen, worst])
        precision = seen / errors[:, None]
        left = np.asarray(np.linalg.lstsq(precision, (columns / errors).T, rcond=None)[0].T, dtype=np.float64)
        of_left = float(np.linalg.norm(np.linalg.pinv(precision)))
        total = float(np.sqrt(of_left**2 + np.sum(rest_errors**2) + np.sum(errors[:k] ** 2) + self.floor**2))
        return Solution(Factors(left, np.asarray(B @ row_space, dtype=np.float64)), total, rank, False)


def _rank(columns: Array, errors: Array, noise: float) -> int:
    """Singular values above what the error bars make of nothing."""
    if not len(errors):
        return 0
    values = np.linalg.svd(columns, compute_uv=False)
    return int((values > noise * np.sqrt(np.mean(errors**2))).sum())
