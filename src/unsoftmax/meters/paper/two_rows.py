"""Pairs as they are given: y = b·v + σ(aᵀWb)·(a·v) for [a+b; b], solved for the score (Theorems 4.1, 6.1)."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, expit, logit
from unsoftmax.meters.base import Answers
from unsoftmax.meters.one_head.ranged_probes import two_rows

__all__ = ["TwoRowMeter"]


class TwoRowMeter:
    """Asks every pair once, at its own size. v: the readout, as far as it is known.

    largest_score: scores are known not to exceed it, so weights beyond it are errors of the answers and are
    clipped, as Theorem 6.1 does. Without it, a pair that saturates the sigmoid comes back infinite or NaN.

    >>> from unsoftmax import Ledger, SingleHead
    >>> from unsoftmax.oracles import FunctionOracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    >>> meter = TwoRowMeter(Ledger(FunctionOracle(head), width=2), head.v)
    >>> np.round(meter.forms(np.eye(2), np.eye(2)), 9)
    array([1., 4.])
    """

    def __init__(self, asker: Answers, v: Array, largest_score: float | None = None) -> None:
        self._asker = asker
        self._v = v
        self._limits = None if largest_score is None else (expit(-largest_score), expit(largest_score))

    @property
    def width(self) -> int:
        return len(self._v)

    def forms(self, A: Array, B: Array) -> Array:
        answers = self._asker.ask(two_rows(A, B))
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = (answers - B @ self._v) / (A @ self._v)
        return logit(weights if self._limits is None else np.clip(weights, *self._limits))
