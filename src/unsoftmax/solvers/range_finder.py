"""W of unknown rank r from r(2d - r) measurements: columns until nothing new appears, then only inside their
span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, norm
from unsoftmax.meters import Meter
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.solvers.base import Announce, Solution
from unsoftmax.solvers.bases import FacingBasis, RandomBasis
from unsoftmax.solvers.extra_column import Again, repaired

__all__ = ["RangeFinder"]

_CONFIRMATIONS = 2  # a zero is believed when it is measured three times
_NOISE_SAMPLES = 3  # a form each, beside a column of d: cheap, and within a factor of two
_DRAWS = 32  # bases compared where W is roughly known, without a query
_LARGEST_COEFFICIENT = 1e3  # beyond, the columns are too weak to build on: one more is worth its price


@dataclass(frozen=True)
class RangeFinder:
    """Finds W = Q·[QᵀWB, QᵀWB⊥]·[B B⊥]ᵀ; nothing is inverted.

    B: the first columns of a random orthonormal basis. The columns W B are measured in full, one by one,
    until a fresh probe orthogonal to all of them, on a fresh direction orthogonal to B, measures zero (three
    times). Q spans them. The rest is measured inside Q alone, in blocks of columns of about `block_bytes`.

    Numerical rank: the k of the k columns measured until then. Rule for zero: with `noise` the measuring
    error of aᵀWb (unit a, b), which is found by asking the first column again in other combinations and never
    taken below the meter's own resolution, |aᵀWb| is zero
    - up to margin·(k + 1)·noise;
    - up to margin·noise·sqrt(1 + |y|²), where y are the coefficients of W b in the columns: errors of weak
      columns, magnified by y, look
      like something new. Believed up to |y| = 1000, and only asked for when |aᵀWb| is small enough for that.

    near: W, roughly, where it is known: of many bases the one is taken whose first columns tell its range
    best.
    again: measures a column that is roughly known once more, for meters that do so cheaply; used where the
    columns were nearly dependent.
    """

    margin: float = 10.0
    block_bytes: int = 1 << 20
    near: Matrix | None = None
    again: Again | None = None

    def solve(self, meter: Meter, rng: np.random.Generator, progress: Announce | None = None) -> Solution:
        """W, as factors when its rank is below d."""
        d = meter.width
        basis = self._basis(meter, rng)
        found = _Columns(d)
        noise = 0.0
        while found.count < d:
            noise = max(noise, meter.resolution())
            if self._nothing_left(meter, basis, found, noise, rng):
                break
            b = basis.columns(found.count, found.count + 1)
            column = meter.project(None, b)[:, 0]
            if found.count == 0:
                noise = _noise(meter, b, column, rng)
            found.add(column)
        if progress is not None:
            progress(found.span.shape[1] * (d - found.count))
        matrix = self._assemble(meter, basis, found)
        if self.again is not None and meter.facing is not None and isinstance(matrix, Factors):
            matrix = repaired(
                matrix,
                basis.columns(0, found.count),
                found.columns,
                max(noise, meter.resolution()),
                self.again,
                meter.facing,
            )
        return Solution(matrix, np.inf, found.span.shape[1])

    def _basis(self, meter: Meter, rng: np.random.Generator) -> RandomBasis:
        def draw() -> RandomBasis:
            d, facing = meter.width, meter.facing
            return RandomBasis(d, rng) if facing is None else FacingBasis(d, rng, facing)

        if not isinstance(self.near, Factors) or not self.near.left.shape[1]:
            return draw()
        row_space = self.near.svd()[2]
        draws = [draw() for _ in range(_DRAWS)]
        return min(
            draws,
            key=lambda basis: float(
                np.linalg.norm(np.linalg.pinv(basis.columns(0, row_space.shape[1]).T @ row_space))
            ),
        )

    def _nothing_left(
        self, meter: Meter, basis: RandomBasis, found: _Columns, noise: float, rng: np.random.Generator
    ) -> bool:
        """Whether what is not yet measured is zero. Values that an unlucky probe could have made of noise are
        tried again."""
        limit = self.margin * (found.count + 1) * noise
        zeros = doubtful = 0
        while zeros <= _CONFIRMATIONS:
            a = _orthogonal_to(found.span, rng)
            if a is None:
                return True
            mix = np.zeros((1, basis.width))
            mix[0, found.count :] = rng.standard_normal(basis.width - found.count)
            if meter.facing is not None:
                mix = np.abs(mix)
            b = basis.apply(mix / norm(mix)).T
            form = abs(float(meter.project(a[:, None], b)[0, 0]))
            if form > limit:
                doubtful += 1
                if form <= 100.0 * limit and doubtful == 1:
                    continue
                if not self._explained(meter, found, b, form, noise):
                    return False
            zeros += 1
        return True

    def _explained(self, meter: Meter, found: _Columns, b: Array, form: float, noise: float) -> bool:
        """Whether errors of the columns explain all that was measured outside their span."""
        if found.span.shape[1] == 0 or form > self.margin * noise * _LARGEST_COEFFICIENT:
            return False
        size = found.coefficients(meter.project(found.span, b)[:, 0])
        return size <= _LARGEST_COEFFICIENT and form <= self.margin * noise * np.sqrt(1.0 + size**2)

    def _assemble(self, meter: Meter, basis: RandomBasis, found: _Columns) -> Matrix:
        d, k = meter.width, found.count
        if k == 0:
            return Factors(np.zeros((d, 0)), np.zeros((d, 0)))
        if k == d:
            return Dense(np.ascontiguousarray(basis.apply(found.columns)))
        span = found.span
        inside = np.empty((span.shape[1], d))
        inside[:, :k] = span.T @ found.columns
        block = max(1, min(d, self.block_bytes // (8 * d)))
        for start in range(k, d, block):
            stop = min(start + block, d)
            inside[:, start:stop] = meter.project(span, basis.columns(start, stop), rest_is_zero=True)
        return Factors(span, np.ascontiguousarray(basis.apply(inside).T))


class _Columns:
    """The measured columns and an orthonormal basis of their span, in memory that doubles when it is full."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self._dimension = 0
        self._columns = np.empty((min(8, width), width))
        self._span = np.empty((min(8, width), width))

    @property
    def columns(self) -> Array:
        """W B, (d, k)."""
        return self._columns[: self.count].T

    @property
    def span(self) -> Array:
        """Q, (d, at most k)."""
        return self._span[: self._dimension].T

    def add(self, column: Array) -> None:
        """One more column; its new direction is orthogonalised twice, because once is not enough."""
        if self.count == len(self._columns):
            self._columns, self._span = (
                np.concatenate([kept, np.empty_like(kept)]) for kept in (self._columns, self._span)
            )
        self._columns[self.count] = column
        self.count += 1
        size = norm(column)
        fresh = column
        for _ in range(2):
            fresh = fresh - self.span @ (self.span.T @ fresh)
        length = norm(fresh)
        if size == 0.0 or length <= 1e-15 * size:
            return
        fresh = fresh / length
        fresh = fresh - self.span @ (self.span.T @ fresh)
        self._span[self._dimension] = fresh / norm(fresh)
        self._dimension += 1

    def coefficients(self, inside: Array) -> float:
        """Size of y with W b = (W B) y, from the part of W b inside the span."""
        y = np.linalg.lstsq(self.span.T @ self.columns, inside, rcond=None)[0]
        return float(np.linalg.norm(y))


def _noise(meter: Meter, b: Array, column: Array, rng: np.random.Generator) -> float:
    """Size of the measuring error of aᵀWb for unit a and b: the first column asked again in random
    combinations."""
    errors = []
    for _ in range(_NOISE_SAMPLES if meter.width > 1 else 0):
        a = rng.standard_normal(meter.width)
        a /= np.linalg.norm(a)
        errors.append(float(meter.project(a[:, None], b)[0, 0] - a @ column))
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0


def _orthogonal_to(span: Array, rng: np.random.Generator) -> Array | None:
    if span.shape[1] >= span.shape[0]:
        return None
    a = np.asarray(rng.standard_normal(span.shape[0]))
    for _ in range(2):
        a = a - span @ (span.T @ a)
        a = a / norm(a)
    return a
