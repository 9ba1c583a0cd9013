"""W of unknown rank r from r(2d - r) measurements: columns until nothing new appears, then only inside their span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.meters import Meter
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.oracles import Array
from unsoftmax.solvers.bases import RandomBasis

__all__ = ["RangeFinder"]

_CONFIRMATIONS = 2  # a zero is believed when it is measured three times
_NOISE_SAMPLES = 3


@dataclass(frozen=True)
class RangeFinder:
    """Finds W = Q·[QᵀWB, QᵀWB⊥]·[B B⊥]ᵀ; nothing is inverted.

    B: the first columns of a random orthonormal basis. The columns W B are measured in full, one by one, until a fresh probe
    orthogonal to all of them, on a fresh direction orthogonal to B, measures zero (three times). Q spans them.
    The rest is measured inside Q alone.

    Rule for zero: |aᵀWb| below `margin`·(k + 1) times the noise, which is measured by asking the first column again in other
    combinations, and is never taken below the meter's own resolution.
    """

    margin: float = 10.0

    def solve(self, meter: Meter, rng: np.random.Generator, announce: Callable[[int], None] | None = None) -> Matrix:
        """W, as factors when its rank is below d. `announce` hears the number of measurements still to come."""
        d = meter.width
        basis = RandomBasis(d, rng)
        columns: list[Array] = []
        span = np.empty((d, 0))
        noise = 0.0
        while len(columns) < d:
            k = len(columns)
            noise = max(noise, meter.resolution)
            if self._nothing_left(meter, basis, span, k, self.margin * (k + 1) * noise, rng):
                break
            b = basis.columns(k, k + 1)
            column = meter.project(None, b)[:, 0]
            columns.append(column)
            span = _extend(span, column)
            if k == 0:
                noise = _noise(meter, b, column, rng)
        if announce is not None:
            announce(len(columns) * (d - len(columns)))
        return self._assemble(meter, basis, columns, span)

    def _nothing_left(self, meter: Meter, basis: RandomBasis, span: Array, k: int, limit: float, rng: np.random.Generator) -> bool:
        """Whether what is not yet measured is zero. Values that an unlucky probe could have made of noise are tried again."""
        zeros = doubtful = 0
        while zeros <= _CONFIRMATIONS and doubtful < 2:
            a = _orthogonal_to(span, rng)
            if a is None:
                return True
            mix = np.zeros((1, basis.width))
            mix[0, k:] = rng.standard_normal(basis.width - k)
            b = basis.apply(mix / np.linalg.norm(mix)).T
            size = abs(float(meter.project(a[:, None], b)[0, 0]))
            if size > 100.0 * limit:
                return False
            zeros, doubtful = (zeros + 1, doubtful) if size <= limit else (zeros, doubtful + 1)
        return doubtful < 2

    def _assemble(self, meter: Meter, basis: RandomBasis, columns: list[Array], span: Array) -> Matrix:
        d, k = meter.width, len(columns)
        if k == 0:
            return Factors(np.zeros((d, 0)), np.zeros((d, 0)))
        C = np.column_stack(columns)
        if k == d:
            return Dense(np.ascontiguousarray(basis.apply(C)))
        r = span.shape[1]
        inside = np.empty((r, d))
        inside[:, :k] = span.T @ C
        block = max(1, min(d, (8 << 20) // (8 * d)))
        for start in range(k, d, block):
            stop = min(start + block, d)
            inside[:, start:stop] = meter.project(span, basis.columns(start, stop), rest_is_silent=True)
        return Factors(span, np.ascontiguousarray(basis.apply(inside).T))


def _noise(meter: Meter, b: Array, column: Array, rng: np.random.Generator) -> float:
    """Size of the measuring error of aᵀWb for unit a and b: the first column asked again in random combinations."""
    errors = []
    for _ in range(_NOISE_SAMPLES if meter.width > 1 else 0):
        a = rng.standard_normal(meter.width)
        a /= np.linalg.norm(a)
        errors.append(float(meter.project(a[:, None], b)[0, 0] - a @ column))
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0


def _extend(span: Array, column: Array) -> Array:
    """The orthonormal basis with one more direction; twice orthogonalised, because once is not enough."""
    size = float(np.linalg.norm(column))
    fresh = column
    for _ in range(2):
        fresh = fresh - span @ (span.T @ fresh)
    length = float(np.linalg.norm(fresh))
    if size == 0.0 or length <= 1e-15 * size:
        return span
    fresh = fresh / length
    fresh = fresh - span @ (span.T @ fresh)
    return np.column_stack([span, fresh / np.linalg.norm(fresh)])


def _orthogonal_to(span: Array, rng: np.random.Generator) -> Array | None:
    if span.shape[1] >= span.shape[0]:
        return None
    a = np.asarray(rng.standard_normal(span.shape[0]))
    for _ in range(2):
        a = a - span @ (span.T @ a)
        a = a / np.linalg.norm(a)
    return a
