"""Two rows with b against a: y = λ b·v - σ(-t)(c/λ) g·v changes sign once in λ, where σ(-t) can be read off
without knowing |v|."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, expit, rms
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import Meter
from unsoftmax.meters.probes.balanced_basis import EvenRows, columns_that_see, even_rows_for

__all__ = ["EDGE", "CrossingMeter", "crossing_rows", "crossing_size", "rows_facing"]

EDGE = 6.0  # scores beyond are asked again with a smaller c
_LONGEST = 23.0  # with c = 1, no row of a score within the edge is longer
_SHRINK = 8.0  # divides c for a score beyond the edge
_TRIES = 40  # c falls by 2^-120
_UNSEEN = 0.02  # part of the usual b·v below which too many digits would be lost
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


class CrossingMeter(Meter):
    """Measures aᵀWb by zero crossings; subclasses say how a crossing is found. v may have any length: only
    its direction enters."""

    def __init__(self, ledger: Asker, v: Array, rng: np.random.Generator) -> None:
        self._ledger = ledger
        self._v = v / np.linalg.norm(v)
        self._rng = rng
        self._whole = EvenRows(self._v)
        self._typical: float | None = None

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def facing(self) -> Array | None:
        return self._v

    def typical_score(self) -> float:
        """Root mean square of gᵀWb for balanced unit vectors, found with a few queries when first called."""
        if self._typical is None:
            self._typical = self._find_typical()
        return self._typical

    def forms(self, A: Array, B: Array) -> Array:
        """aᵀWb for each pair, all together."""
        sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
        some = np.flatnonzero(sizes)
        forms = np.zeros(len(A))
        if len(some):
            G, X = (rows[some] / np.linalg.norm(rows[some], axis=1)[:, None] for rows in (A, B))
            forms[some] = self._unit_forms(G, X)
        return np.asarray(forms * sizes)

    def _unit_forms(self, G: Array, X: Array) -> Array:
        """gᵀWx for unit rows; one that hardly sees v gets v added, and v's own form taken off again."""
        for left, (rows, others) in enumerate(((X, G), (G, X))):
            unseen = np.abs(rows @ self._v) < _UNSEEN / np.sqrt(self.width)
            if unseen.any():
                added = np.where(unseen[:, None], rows + self._v, rows)
                lengths = np.linalg.norm(added, axis=1)
                of_v = np.tile(self._v, (int(unseen.sum()), 1))
                pairs = [(added / lengths[:, None], others), (of_v, others[unseen])]
                forms, own = (self._unit_forms(*(pair if left else pair[::-1])) for pair in pairs)
                forms *= lengths
                forms[unseen] -= own
                return forms
        signs = [np.where(rows @ self._v < 0.0, -1.0, 1.0) for rows in (G, X)]
        pairs_forms = self._pairs(
            G * signs[0][:, None], X * signs[1][:, None], _TYPICAL / self.typical_score()
        )
        return np.asarray(pairs_forms * signs[0] * signs[1])

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        """See `Meter.project`. A b that hardly sees v gets v added, and v's own column taken off again."""
        least = _UNSEEN / np.sqrt(self.width)
        return columns_that_see(
            lambda seen: self._project(basis, seen, rest_is_zero=rest_is_zero), B, self._v, least
        )

    def _project(self, basis: Array | None, B: Array, *, rest_is_zero: bool) -> Array:
        if basis is None:
            forms = self._grid(self._whole, B, self.typical_score())
            # a few pilots may have been faint by chance
            self._typical = max(self.typical_score(), rms(forms))
            return self._whole.coordinates(forms).T
        probes = even_rows_for(self._v, basis, rest_is_zero=rest_is_zero)
        typical = self.typical_score() * (np.sqrt(self.width / probes.count) if rest_is_zero else 1.0)
        forms = self._grid(probes, B, typical)
        if probes.carrier is not None and not rest_is_zero:
            forms = forms - self._grid(EvenRows(self._v, probes.carrier[:, None]), B, typical)
        return probes.coordinates(forms).T

    def column_near(self, b: Array, near: Array, error: float) -> Array:
        """W b for a unit b that sees v, known to be `near` up to a vector of about the length `error`:
        dearer the more that is."""
        sign = 1.0 if b @ self._v >= 0.0 else -1.0
        G, B = self._whole.rows(0, self.width), np.tile(sign * b, (self.width, 1))
        expected = sign * (G @ near)
        c = np.minimum(_TYPICAL / self.typical_score(), self._largest_scales(G, B))
        c = np.minimum(c, 0.8 * EDGE / np.maximum(np.abs(expected), 1e-300))
        scores = self._solve_near(G, B, c, c * expected, float(c.max()) * error / np.sqrt(self.width))
        return np.asarray(self._whole.coordinates((sign * scores / c)[None])[0])

    def _grid(self, probes: EvenRows, B: Array, typical: float) -> Array:
        """a_iᵀWb_j for every probe and column, shape (n, k)."""
        rows = probes.rows(0, probes.count)
        signs = np.where(rows @ self._v < 0.0, -1.0, 1.0)
        asking = B.T * np.where(B.T @ self._v < 0.0, -1.0, 1.0)[:, None]
        n, k = len(asking), len(rows)
        G = np.tile(rows * signs[:, None], (n, 1))
        forms = self._pairs(G, np.repeat(asking, k, axis=0), _TYPICAL / typical).reshape(n, k) * signs
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
            return np.full(len(G), self._largest_c())
        ratio = np.sqrt((G @ self._v) / (B @ self._v))
        g, b = np.linalg.norm(G, axis=1), np.linalg.norm(B, axis=1)
        # λ/√c at the largest and the smallest score; between them rows are shorter
        ends = (ratio * np.sqrt(float(expit(-1.1 * EDGE))), ratio)
        longest = np.maximum(*(end * b + g / end for end in ends))
        return np.asarray((0.99 * bound / longest) ** 2)

    def _largest_c(self) -> float:
        """Keeps rows within the input bound."""
        bound = self._ledger.input_bound
        return 2.0**100 if bound is None else (bound / _LONGEST) ** 2

    def _solve(self, G: Array, B: Array, c: Array) -> Array:
        raise NotImplementedError  # pragma: no cover - abstract

    def _solve_near(self, G: Array, B: Array, c: Array, expected: Array, error: float) -> Array:
        """The scores c·gᵀWb that are `expected` to a standard deviation of `error`."""
        raise NotImplementedError  # pragma: no cover - abstract

    def _find_typical(self) -> float:
        raise NotImplementedError  # pragma: no cover - abstract

    def random_pairs(self, n: int) -> tuple[Array, Array]:
        """Fresh balanced unit vectors (G, B)."""
        return rows_facing(self._v, n, self._rng), rows_facing(self._v, n, self._rng)


def rows_facing(v: Array, n: int, rng: np.random.Generator) -> Array:
    """Random unit rows x (n, d) with x·v = 1/sqrt(d), for a unit v.

    >>> np.round(rows_facing(np.array([0.6, 0.8]), 2, np.random.default_rng(0)) @ np.array([0.6, 0.8]), 6)
    array([0.707107, 0.707107])
    """
    d = len(v)
    if d == 1:
        return np.tile(v, (n, 1))
    beside = rng.standard_normal((n, d))
    beside -= np.outer(beside @ v, v)
    beside /= np.linalg.norm(beside, axis=1)[:, None]
    return np.asarray(v / np.sqrt(d) + np.sqrt(1.0 - 1.0 / d) * beside)
