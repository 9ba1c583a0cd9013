"""Pairs scaled by a common factor, so that none of them saturates (Theorem 5.1 in floating point)."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.base import Answers
from unsoftmax.meters.one_head.exact import SigmoidMeter
from unsoftmax.meters.paper.two_rows import TwoRowMeter

__all__ = ["ScaledPairs"]

_PILOT = 16  # their median is known to about 30 %, and long tails hardly move it
# products of Gaussians have long tails: the largest of thousands is twenty times as large, and must not
# saturate
_TYPICAL_SCORE = 0.15
_READABLE = 5.0  # dσ/dt = 0.007 there: beyond, the inverse sigmoid loses more than two digits
_ROUNDING = 1e-9  # a median score below, at the largest size, is rounding: W = 0


class ScaledPairs:
    """Asks every pair once, all at one size that the first of them choose; pilots that were too large come
    back as NaN.

    Building it asks a few queries, for the order of magnitude of scores.

    >>> from unsoftmax import Ledger, random_single_head
    >>> from unsoftmax.oracles import FunctionOracle
    >>> head, rng = random_single_head(4, scale=1e3, seed=0), np.random.default_rng(0)
    >>> meter = ScaledPairs(Ledger(FunctionOracle(head), width=4), head.v, rng)
    >>> A, B = rng.standard_normal((2, 40, 4))
    >>> bool(np.nanmax(np.abs(meter.forms(A, B) / np.einsum("ki,ij,kj->k", A, head.W, B) - 1.0)) < 1e-9)
    True
    """

    def __init__(self, asker: Answers, v: Array, rng: np.random.Generator) -> None:
        self._pairs = TwoRowMeter(asker, v)
        self._sizes = SigmoidMeter(asker, v, rng=rng).sizes()

    @property
    def width(self) -> int:
        return self._pairs.width

    def forms(self, A: Array, B: Array) -> Array:
        gamma, beta = (size / np.sqrt(self.width) for size in self._sizes)
        t = np.empty(len(A))
        start, settled = 0, False
        while start < len(A):
            part = slice(start, len(A) if settled else min(start + _PILOT, len(A)))
            scores = self._pairs.forms(gamma * A[part], beta * B[part])
            scores = np.where(np.isfinite(scores), scores, np.inf)
            typical = float(np.median(np.abs(scores)))
            readable = np.isfinite(scores) if settled else np.abs(scores) < _READABLE
            if typical <= _ROUNDING:
                scores, readable = np.zeros(len(scores)), np.full(len(scores), True)
            t[part] = np.where(readable, scores, np.nan) / (gamma * beta)
            start, settled = part.stop, typical < 1.0
            if typical > _READABLE:
                gamma *= 2.0**-6
            elif typical > _ROUNDING:
                gamma *= _TYPICAL_SCORE / typical
        return t
