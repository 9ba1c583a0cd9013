"""Two rows with b against a: y = λ b·v - σ(-t)(c/λ) g·v changes sign once in λ, where σ(-t) can be read off
without knowing |v|."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from unsoftmax.arrays import Array
from unsoftmax.ledger import Ledger
from unsoftmax.meters.base import forms_by_projection
from unsoftmax.meters.probes.balanced_basis import EvenRows, even_rows_for

__all__ = ["CrossingMeter", "crossing_rows", "crossing_size"]

EDGE = 6.0  # scores beyond are asked again with a smaller c
_LONGEST = 23.0  # with c = 1, no row of a score within the edge is longer
_SHRINK = 8.0
_TRIES = 40
_QUIET = 0.02  # part of the usual b·v below which too many digits would be lost
_TYPICAL = 1.0  # root mean square of the scores that are aimed at


def crossing_rows(G: Array, B: Array, c: Array, lam: Array) -> Array:
    """The sequences [λb - (c/λ)g; λb]: whatever λ, the first row's score is -c·gᵀWb."""
    b = lam[:, None] * B
    return np.stack([b - (c / lam)[:, None] * G, b], axis=1)


def crossing_size(score: Array, c: Array, g_v: Array, b_v: Array) -> Array:
    """The λ at which the answer is zero when the score c·gᵀWb is `score`.

    >>> float(crossing_size(np.array(0.0), np.array(2.0), np.array(3.0), np.array(3.0)))
    1.0
    """
    return np.asarray(np.sqrt(expit(-score) * c * g_v / b_v))


class CrossingMeter:
    """Measures aᵀWb by zero crossings; subclasses say how a crossing is found. v may have any length: only
    its direction enters."""

    def __init__(self, ledger: Ledger, v: Array, rng: np.random.Generator) -> None:
        self._ledger = ledger
        self._v = v / np.linalg.norm(v)
        self._rng = rng
        self._whole = EvenRows(self._v)
        self._strength: float | None = None

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def strength(self) -> float:
        """Root mean square of gᵀWb for balanced unit vectors, found with a few queries when first needed."""
        if self._strength is None:
            self._strength = self._find_strength()
        return self._strength

    @property
    def resolution(self) -> float:
        """See `Meter.resolution`."""
        raise NotImplementedError  # pragma: no cover - abstract

    def forms(self, A: Array, B: Array) -> Array:
        """aᵀWb for each pair; a probe that hardly hears v gets v added, and v's own form taken off again."""
        return forms_by_projection(self, A, B)

    def project(self, basis: Array | None, B: Array, *, rest_is_silent: bool = False) -> Array:
        """See `Meter.project`. A b that hardly hears v gets v added, and v's own column taken off again."""
        quiet = np.abs(self._v @ B) < _QUIET / np.sqrt(self.width)
        if quiet.any():
            lengths = np.linalg.norm(B[:, quiet] + self._v[:, None], axis=0)
            louder = np.column_stack([np.where(quiet, 0.0, B), self._v])
            louder[:, :-1][:, quiet] = (B[:, quiet] + self._v[:, None]) / lengths
            found = self.project(basis, louder, rest_is_silent=rest_is_silent)
            columns, own = found[:, :-1], found[:, -1:]
            columns[:, quiet] = columns[:, quiet] * lengths - own
            return columns
        if basis is None:
            forms = self._grid(self._whole, B, self.strength)
            self._strength = max(
                self.strength, float(np.sqrt(np.mean(forms**2)))
            )  # a few pilots may have been faint by chance
            return self._whole.coordinates(forms).T
        probes = even_rows_for(self._v, basis, rest_is_silent=rest_is_silent)
        strength = self.strength * (np.sqrt(self.width / probes.count) if rest_is_silent else 1.0)
        forms = self._grid(probes, B, strength)
        if probes.carrier is not None and not rest_is_silent:
            forms = forms - self._grid(EvenRows(self._v, probes.carrier[:, None]), B, strength)
        return probes.coordinates(forms).T

    def column_near(self, b: Array, near: Array, error: float) -> Array:
        """W b for a unit b that hears v, known to be `near` up to a vector of about the length `error`:
        dearer the more that is."""
        sign = 1.0 if b @ self._v >= 0.0 else -1.0
        G, B = self._whole.rows(0, self.width), np.tile(sign * b, (self.width, 1))
        expected = sign * (G @ near)
        c = np.minimum(_TYPICAL / self.strength, self._largest_scales(G, B))
        c = np.minimum(c, 0.8 * EDGE / np.maximum(np.abs(expected), 1e-300))
        scores = self._solve_near(G, B, c, c * expected, float(c.max()) * error / np.sqrt(self.width))
        return np.asarray(self._whole.coordinates((sign * scores / c)[None])[0])

    def _grid(self, probes: EvenRows, B: Array, strength: float) -> Array:
        """a_iᵀWb_j for every probe and column, shape (n, k)."""
        rows = probes.rows(0, probes.count)
        signs = np.where(rows @ self._v < 0.0, -1.0, 1.0)
        asking = B.T * np.where(B.T @ self._v < 0.0, -1.0, 1.0)[:, None]
        n, k = len(asking), len(rows)
        G = np.tile(rows * signs[:, None], (n, 1))
        forms = self._pairs(G, np.repeat(asking, k, axis=0), _TYPICAL / strength).reshape(n, k) * signs
        return np.asarray(forms * np.where(B.T @ self._v < 0.0, -1.0, 1.0)[:, None])

    def _pairs(self, G: Array, B: Array, c: float) -> Array:
        """gᵀWb for every pair of rows; those whose score saturates again with a smaller c."""
        scale = np.minimum(c, self._largest_scales(G, B))
        scores = self._solve(G, B, scale)
        for _ in range(_TRIES):
            edge = ~(np.abs(scores) < EDGE)
            if not edge.any():
                break
            scale[edge] /= _SHRINK
            scores[edge] = self._solve(G[edge], B[edge], scale[edge])
        return np.asarray(scores / scale)

    def _largest_scales(self, G: Array, B: Array) -> Array:
        """For each pair the c up to which both rows stay within the input bound, wherever the crossing
        lies."""
        bound = self._ledger.input_bound
        if bound is None:
            return np.full(len(G), self._largest_c)
        ratio = np.sqrt((G @ self._v) / (B @ self._v))
        g, b = np.linalg.norm(G, axis=1), np.linalg.norm(B, axis=1)
        ends = (
            ratio * np.sqrt(float(expit(-1.1 * EDGE))),
            ratio,
        )  # λ/√c at the largest and the smallest score; between them rows are shorter
        longest = np.maximum(*(end * b + g / end for end in ends))
        return np.asarray((0.99 * bound / longest) ** 2)

    @property
    def _largest_c(self) -> float:
        """Keeps rows within the input bound."""
        bound = self._ledger.input_bound
        return 2.0**100 if bound is None else (bound / _LONGEST) ** 2

    def _solve(self, G: Array, B: Array, c: Array) -> Array:
        raise NotImplementedError  # pragma: no cover - abstract

    def _solve_near(self, G: Array, B: Array, c: Array, expected: Array, error: float) -> Array:
        """The scores c·gᵀWb that are `expected` to a standard deviation of `error`."""
        raise NotImplementedError  # pragma: no cover - abstract

    def _find_strength(self) -> float:
        raise NotImplementedError  # pragma: no cover - abstract

    def _random_pairs(self, n: int) -> tuple[Array, Array]:
        """Balanced unit vectors, drawn afresh."""
        G = np.array([_facing(self._v, self._rng) for _ in range(n)])
        B = np.array([_facing(self._v, self._rng) for _ in range(n)])
        return G, B


def _facing(v: Array, rng: np.random.Generator) -> Array:
    """A random unit vector x with x·v = 1/sqrt(d), for a unit v."""
    d = len(v)
    if d == 1:
        return v.copy()
    beside = rng.standard_normal(d)
    beside -= v * (v @ beside)
    return np.asarray(v / np.sqrt(d) + np.sqrt(1.0 - 1.0 / d) * beside / np.linalg.norm(beside))
