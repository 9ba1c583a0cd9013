"""Detectors of query patterns, as a service would run them on each account: an alarm ends the account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles import Oracle, OracleSpec

__all__ = ["Detector", "Prada", "StructuredRows", "Watched", "false_alarms"]

_LEAST = 100  # queries before an alarm; PRADA's own
_EVERY = 20  # queries between two tests of a distribution, which cost more than a query
_WINDOW = 100  # latest queries among which structured ones are counted
_PARALLEL = 1.0 - 1e-9  # cosine of two rows from which they count as one direction


class Detector(Protocol):
    """Sees one sequence (N, d) after the other, and says when it has seen enough."""

    def alarm(self, sequence: Array, /) -> bool: ...


class Prada:
    """PRADA (Juuti et al., EuroS&P 2019, arXiv:1805.02628): the distance of each query to the nearest earlier
    one is normally distributed for honest users; an alarm where the Shapiro-Wilk statistic falls below delta.

    A model that gives numbers has one class. Sequences of different lengths are compared with zeros in the
    missing rows. Only queries further away than mean minus deviation join those that are compared with.
    """

    def __init__(self, delta: float = 0.9) -> None:
        if not 0.0 < delta < 1.0:
            raise UsageError(f"delta of PRADA must lie between 0 and 1, not {delta!r}")
        self.delta = delta
        self._kept = np.zeros((0, 0))
        self._n_kept = 0
        self._distances: list[float] = []
        self._since = 0

    def alarm(self, sequence: Array, /) -> bool:
        point = np.ravel(sequence)
        self._make_room(len(point))
        nearest = np.inf
        if self._n_kept:
            gaps = self._kept[: self._n_kept].copy()
            gaps[:, : len(point)] -= point
            nearest = float(np.sqrt(np.einsum("nk,nk->n", gaps, gaps).min()))
            self._distances.append(nearest)
        if nearest > self._threshold():
            self._kept[self._n_kept, : len(point)] = point
            self._n_kept += 1
        self._since += 1
        if len(self._distances) < _LEAST or self._since < _EVERY:
            return False
        self._since = 0
        return self._statistic() < self.delta

    def _threshold(self) -> float:
        if not self._distances:
            return 0.0
        known = np.array(self._distances)
        return float(known.mean() - known.std())

    def _make_room(self, width: int) -> None:
        """One more query, of that many numbers."""
        rows, columns = self._kept.shape
        if self._n_kept == rows or width > columns:
            grown = np.zeros((max(2 * rows, 64) if self._n_kept == rows else rows, max(width, columns)))
            grown[:rows, :columns] = self._kept
            self._kept = grown

    def _statistic(self) -> float:
        from scipy.stats import shapiro

        seen = np.array(self._distances)
        inside = seen[np.abs(seen - seen.mean()) <= 3.0 * seen.std()]
        if len(inside) < 3 or float(np.ptp(inside)) == 0.0:
            return 0.0
        return float(shapiro(inside[-5000:]).statistic)


class StructuredRows:
    """Alarm where more than a share of the latest queries have rows that no data has: rows of zeros or mostly
    zeros, parallel rows in one sequence, or a row along one that another query had."""

    def __init__(self, share: float = 0.05) -> None:
        if not 0.0 < share < 1.0:
            raise UsageError(f"the share of structured queries must lie between 0 and 1, not {share!r}")
        self.share = share
        self._directions: set[bytes] = set()
        self._latest: list[bool] = []

    def alarm(self, sequence: Array, /) -> bool:
        norms = np.linalg.norm(sequence, axis=1)
        rows = sequence[norms > 0.0] / norms[norms > 0.0, None]
        structured = len(rows) < len(sequence) or bool((np.mean(sequence == 0.0, axis=1) >= 0.5).any())
        if len(rows) > 1:
            cosines = np.abs(rows @ rows.T) - np.eye(len(rows))
            structured = structured or bool(cosines.max() > _PARALLEL)
        keys = {_key(row) for row in rows}
        structured = structured or bool(keys & self._directions)
        self._directions |= keys
        self._latest = [*self._latest[-_WINDOW + 1 :], structured]
        return len(self._latest) == _WINDOW and sum(self._latest) > self.share * _WINDOW


class Watched:
    """A target that stops answering at the first alarm. sent: the queries that it has seen. detectors: one an
    account; whoever has several accounts asks from each in turn."""

    def __init__(self, inner: Oracle, detectors: Sequence[Detector]) -> None:
        self.inner, self.detectors, self.sent = inner, tuple(detectors), 0

    @property
    def spec(self) -> OracleSpec:
        return self.inner.spec

    def __call__(self, batch: Array, /) -> Array:
        for sequence in batch:
            detector = self.detectors[self.sent % len(self.detectors)]
            self.sent += 1
            if detector.alarm(sequence):
                name = type(detector).__name__
                raise OracleFault(f"the detector {name} ended an account after {self.sent:,} queries in all")
        return self.inner(batch)


def false_alarms(detector: Detector, honest: Array) -> float:
    """The share of honest sequences, asked by one account in turn, that is not answered any more."""
    for index, sequence in enumerate(honest):
        if detector.alarm(sequence):
            return 1.0 - index / len(honest)
    return 0.0


def _key(row: Array) -> bytes:
    """A direction, signless, to six digits."""
    first = row[np.argmax(np.abs(row))]
    return bytes(np.round(row * np.sign(first), 6).tobytes())
