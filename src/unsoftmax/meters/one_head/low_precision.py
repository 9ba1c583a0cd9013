"""Answers in float32, float16 or bfloat16: near zero their precision is relative, so ask where the answer is
predicted to vanish."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, expit, logit, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import Asker
from unsoftmax.meters.one_head.sign_change import EDGE, CrossingMeter, crossing_rows, crossing_size
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.ladder import Moderate, climb

__all__ = ["PASSES", "ZeroCentredMeter"]

# each pass multiplies the error by about the precision, until float64 is reached
PASSES = {"float32": 2, "float16": 4, "bfloat16": 7}
# measured: error of a score after one pass from nothing
_FIRST_PASS = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}
_PILOTS = 8  # their root mean square is then known to about 25 %
# a share that changes so little with its score is worth one more pass
_FLAT = {"float32": 0.02, "float16": 0.0, "bfloat16": 0.0}
_LEAST = float(expit(-EDGE - 0.5))  # shares are held a little beyond the largest score that is read
_LARGEST_C = 1e60  # rows of 1e30: products of two of them are far from float64's limit
_FEW = 3  # pilots a look at another size
# scores up to 6 are read well here, so nothing has to shrink fast
_MODERATE = Moderate(faint=0.5, strong=3.5, aim=1.5, least=2.0, shrink=0.25, unreadable=np.inf)


class ZeroCentredMeter(CrossingMeter):
    """Secant passes: each answer says how far the zero is, and the next query is asked there.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import LowPrecision, SingleHead, as_oracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.6, 0.8]))
    >>> ledger = Ledger(LowPrecision(as_oracle(head), "bfloat16"))
    >>> meter = ZeroCentredMeter(ledger, head.v, np.random.default_rng(0), "bfloat16")
    >>> np.round(meter.project(None, np.eye(2)), 12)
    array([[1., 2.],
           [3., 4.]])
    """

    def __init__(self, ledger: Asker, v: Array, rng: np.random.Generator, precision: str) -> None:
        super().__init__(ledger, v, rng)
        self._size = float(np.linalg.norm(v))
        self._precision = precision
        self._passes = PASSES[precision]

    def resolution(self) -> float:
        """What is left of a form after the last pass: float64 rounding, or float16's smallest steps."""
        floor = (
            2.0**-24 / (self._size * np.sqrt(self.width) ** -1)
            if self._precision == FloatFormat.FLOAT16
            else 0.0
        )
        return float(self.typical_score() * (64.0 * EPS + floor))

    def _largest_c(self) -> float:
        """float16 overflows at 65504, so its answers are kept to about a tenth of that."""
        within = super()._largest_c()
        return (
            min(within, (5e3 * np.sqrt(self.width) / self._size) ** 2)
            if self._precision == FloatFormat.FLOAT16
            else within
        )

    def _solve(self, G: Array, B: Array, c: Array) -> Array:
        return self._secant(G, B, c, self._passes)

    def _solve_near(self, G: Array, B: Array, c: Array, expected: Array, error: float) -> Array:
        known = np.log(max(error, EPS)) / np.log(_FIRST_PASS[self._precision])  # in passes
        whole = np.log(EPS) / np.log(_FIRST_PASS[self._precision])
        return self._secant(G, B, c, int(np.clip(np.ceil(whole - known), 1, self._passes)), expit(-expected))

    def _secant(self, G: Array, B: Array, c: Array, passes: int, start: Array | None = None) -> Array:
        share = np.full(len(G), 0.5) if start is None else start
        for _ in range(passes):
            share = self._closer(G, B, c, share)
        flat = share * (1.0 - share) < _FLAT[self._precision]
        if flat.any():
            share[flat] = self._closer(G[flat], B[flat], c[flat], share[flat])
        return -logit(share)

    def _closer(self, G: Array, B: Array, c: Array, share: Array) -> Array:
        """One pass: the shares that the answers at the zeros of `share` tell."""
        g_v, b_v = G @ self._v, B @ self._v
        lam = np.sqrt(share * c * g_v / b_v)

        def ask(part: slice) -> Array:
            return self._ledger.ask(crossing_rows(G[part], B[part], c[part], lam[part]))

        answers = in_parts(ask, len(G), self._ledger.batch_size(2)) / self._size
        return np.clip((lam * b_v - answers) / (c / lam * g_v), _LEAST, 1.0 - _LEAST)

    def _find_typical(self) -> float:
        """The size of c at which a few scores are moderate, then more of them there."""
        largest = min(self._largest_c(), _LARGEST_C)
        c = climb(lambda c: _MODERATE.factor(np.maximum(self._pilot_scores(c, _FEW), 0.05)), 1.0, largest)
        return float(max(rms(self._pilot_scores(c, _PILOTS)), 0.02) / c)

    def _pilot_scores(self, c: float, count: int) -> Array:
        G, B = self.random_pairs(count)
        return np.abs(self._secant(G, B, np.full(count, c), 1))

    def residual_forms(self, G: Array, B: Array, expected: Array) -> Array:
        """Size of gᵀWb - expected for balanced unit pairs, each from one query at the zero that is predicted:
        what fresh checks use.

        An answer that vanishes in the format may have been half its smallest number, and no share is better
        known than to float64 rounding.
        """
        c = np.full(len(G), min(1.0 / max(rms(expected), 1e-300), self._largest_c()))
        c = np.minimum(c, 0.9 * EDGE / np.maximum(np.abs(expected), 1e-300))
        g_v, b_v = G @ self._v, B @ self._v
        score = c * expected
        lam = crossing_size(score, c, g_v, b_v)
        answers = (
            np.abs(self._ledger.ask(crossing_rows(G, B, c, lam))) + FloatFormat(self._precision).smallest / 2
        ) / self._size
        share = expit(-score)
        moved = answers / (c / lam * g_v) + 2.0 * EPS * share
        return np.asarray(moved / (share * (1.0 - share)) / c)
