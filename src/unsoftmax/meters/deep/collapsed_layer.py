"""The collapsed layer: what all sublayers of a deep pre-norm model write when they see one and the same row.

In h <- h + f_i(norm_i(h)), sublayer after sublayer, a row n/s with mean n² = 1 and small s makes every
sublayer see n. The last stream is h = n/s + F(n) + s·G(n) + ..., with

    F = Σ_i f_i(n)                          all sublayers side by side, as if they were one layer
    G = Σ_i Df_i(n)·P·Σ_{k<i} f_k(n)        who comes before whom; P = 1 - n·nᵀ/d

Of h only the direction may be seen, behind a final norm. Its part across n over its part along n, divided by
s, is u(s) = c0 + c1·s + c2·s² + ... with c0 = P·F and c1 = P·G - (n·F/d)·P·F. A polynomial through a few s
gives both. A single small s is a worse reading: its error falls with s, and rounding grows with 1/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["COLLAPSE_TEST", "CollapsedLayer", "Scales", "StreamReading", "across"]

COLLAPSE_TEST = Test("what a stack adds to a large row is a polynomial in the inverse of its size")

_LADDER = 4.0 ** -np.arange(1.0, 17.0)  # s from 1/4 to 2e-10
_FINE_LADDER = 2.0 ** -np.arange(0.0, 33.0)  # where rows are bounded, every factor counts
_LEAST = 1.0 / (_FINE_LADDER[1] * 0.05)  # size of rows for two scales of the ladder: 40
_ROWS = 3  # directions on which scales are compared
_LOWEST = 0.05  # smallest s of a polynomial over the largest; nodes closer to 0 only add rounding
_SURE = 2.0  # an error bar over the difference of two readings that are both as good as it
_NO_PLATEAU = 0.3  # relative error bar from which nothing was read
# roots of the unit of the arithmetic: so far apart, rows differ in their last digits, and c0 bends by less
_NEARBY = 0.1


class StreamReading(Protocol):
    """The last stream of single rows, up to a positive factor per row."""

    @property
    def width(self) -> int:
        """Columns d of a row."""

    @property
    def held(self) -> FloatFormat | None:
        """The short format in which the target computes; None for float64."""

    def __call__(self, rows: Array, /) -> Array:
        """Rows (B, d) to streams (B, d)."""


@dataclass(frozen=True)
class Scales:
    """Where a polynomial in s is read: `terms` Chebyshev nodes up to `top`.

    >>> Scales(0.1, 1).nodes
    array([0.1])
    """

    top: float
    terms: int

    @property
    def nodes(self) -> Array:
        """The values of s."""
        if self.terms == 1:
            return np.array([self.top])
        places = np.cos(np.pi * (np.arange(self.terms) + 0.5) / self.terms)
        return np.asarray(self.top * (_LOWEST + (1.0 - _LOWEST) * (1.0 + places) / 2.0))

    def weights(self, orders: int) -> Array:
        """(orders, terms): coefficients of s⁰, s¹, ... from readings at the nodes."""
        powers = np.vander(self.nodes / self.top, self.terms, increasing=True)
        return np.asarray(np.linalg.inv(powers)[:orders] / self.top ** np.arange(orders)[:, None])


def across(streams: Array, n: Array) -> Array:
    """The part of streams (..., d) across n over their part along n; mean n² is one."""
    along = (streams * n).mean(axis=-1, keepdims=True)
    return np.asarray((streams - along * n) / along)


@dataclass(frozen=True)
class CollapsedLayer:
    """c0 and c1 of directions n. errors: bars of c0 and c1, relative to their rms over directions."""

    stream: StreamReading
    scales: Scales
    errors: tuple[float, float]
    sizes: tuple[float, float]

    @classmethod
    def measured(
        cls,
        stream: StreamReading,
        rng: np.random.Generator,
        *,
        terms: int,
        order: int = 0,
        bound: float = np.inf,
    ) -> CollapsedLayer:
        """The layer at the scales that read c_order best, found on three directions: 48·terms queries.

        Truncation falls with s, rounding grows with 1/s: the readings of two neighbouring scales agree best
        where both are least. bound: largest norm of a row that may be sent.
        """
        n = unit_rows(rng, _ROWS, stream.width)
        steps = _LADDER if np.isinf(bound) else _FINE_LADDER
        ladder = [s for s in steps if s * _LOWEST >= np.sqrt(stream.width) / bound]
        if len(ladder) < 2:
            raise Unresolved(
                f"rows of norm {bound:.3g} and below are too short to see all layers side by side; "
                f"{_LEAST * np.sqrt(stream.width):.3g} is the least"
            )
        jets = []
        for s in ladder:
            scales = Scales(float(s), terms)
            jets.append(np.einsum("kt,tbd->kbd", scales.weights(min(2, terms)), _readings(stream, scales, n)))
        table = np.array(jets)  # (scales, orders, rows, d)
        off = np.sqrt(((table[1:] - table[:-1]) ** 2).mean(axis=(2, 3)))
        off = np.where(np.isfinite(off), off, np.inf)
        place = int(np.argmin(off[:, min(order, terms - 1)]))
        sizes = [rms(table[place, k]) for k in range(table.shape[1])]
        errors = [
            _SURE * float(off[place, k]) / size if size > 0.0 else np.inf for k, size in enumerate(sizes)
        ]
        if not errors[0] < _NO_PLATEAU:
            raise OutsideClass(COLLAPSE_TEST, f"two sizes that agree best are {errors[0]:.2g} of it apart")
        if not errors[min(order, terms - 1)] < _NO_PLATEAU:
            raise Unresolved(
                f"answers show what all layers write to {errors[0]:.1g}, but not in which order; finer "
                "answers, or longer rows, would help"
            )
        errors, sizes = [*errors, np.inf][:2], [*sizes, 0.0][:2]
        return cls(stream, Scales(float(ladder[place]), terms), (errors[0], errors[1]), (sizes[0], sizes[1]))

    def single(self, jitter: float, bound: float = np.inf) -> CollapsedLayer:
        """The same layer read at one size alone, half the queries or less, for second derivatives along the
        sphere. jitter: of this layer.

        A size 1/s leaves s·c1, and rounding u/s, of which second differences over an angle keep the root:
        both are least at s³ = u. Where no such row may be sent, this layer itself.
        """
        s = float((jitter * self.scales.top) ** (1.0 / 3.0))
        if s * bound < np.sqrt(self.stream.width):
            return self
        return CollapsedLayer(self.stream, Scales(s, 1), (s, np.inf), self.sizes)

    def jets(self, n: Array, orders: int = 2) -> Array:
        """c0 and c1 of rows n (B, d), as (orders, B, d)."""
        return np.asarray(
            np.einsum("kt,tbd->kbd", self.scales.weights(orders), _readings(self.stream, self.scales, n))
        )

    def __call__(self, n: Array, /) -> Array:
        """c0 of rows n (B, d)."""
        return np.asarray(self.jets(n, 1)[0])

    def jitter(self, rng: np.random.Generator) -> float:
        """Rounding of c0, relative to its size: readings of directions that are nearly one. 12·terms queries.

        The error bar of c0 may be larger, because truncation is as smooth as c0 itself; differences of c0
        between near directions are only blurred by this.
        """
        n, step = unit_rows(rng, 2, self.stream.width)
        places = np.linspace(-1.0, 1.0, 12)
        held = self.stream.held
        step_size = _NEARBY * np.sqrt(EPS / 2.0 if held is None else held.unit)
        values = self(n + step_size * places[:, None] * (step - n * (step @ n) / len(n)))
        rows = np.vander(places, 3)
        rest = values - rows @ np.linalg.lstsq(rows, values, rcond=None)[0]
        return 1.2 * rms(rest) / max(self.sizes[0], 1e-300)


def _readings(stream: StreamReading, scales: Scales, n: Array) -> Array:
    """u(s) at all nodes, (terms, B, d)."""
    s = scales.nodes[:, None, None]
    streams = stream((n / s).reshape(-1, n.shape[1])).reshape(len(s), *n.shape)
    return np.asarray(across(streams, n) / s)
