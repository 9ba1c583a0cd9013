"""Scores of long rows around one asking row, from answers off by up to tau, each with how far off it can
be."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Ledger
from unsoftmax.meters.one_head.within_tolerance import MeasuredReadout
from unsoftmax.meters.probes.mirrored_rows import odd_rows, score_interval

__all__ = ["SPREAD", "OddScores"]

SPREAD = 3.0  # a direction chosen at random meets an error vector within three standard deviations
_VALUES, _SCORES = (
    8.0 * EPS,
    3.0 * EPS,
)  # the oracle's own rounding of values and of scores, times the root of the width
_HARMLESS = 0.1
_MODERATE = 1e4  # errors that grow with the answers gain nothing from scores beyond


class OddScores:
    """Asks [b+a; b-a; b] with a as long as allowed, and reads aᵀz, z = Wb + w0.

    longest: norm of the longest row, at most the readout's bound. bias_size, strong: lengths of w0 and of Wb
    for a unit b, as far as they are
    known: a score is only computed to float64 rounding of its parts, and long rows make these large. origin:
    where `bias_size` was measured.

    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.eye(2), np.array([0.6, 0.8]), np.array([1.0, -0.75]))
    >>> scores = OddScores(Ledger(WithinTolerance(as_oracle(head), 0.01)), MeasuredReadout(head.v, 0.0, 0.01,
    ...     1e3), np.random.default_rng(0))
    >>> t, error = scores.ask(np.array([[0.6, 0.8]]), np.array([0.0, 0.0]))
    >>> bool(abs(t[0]) <= error[0] < 1e-4)
    True
    """

    def __init__(
        self, ledger: Ledger, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._ledger = ledger
        self._readout = readout
        self._rng = rng
        self._repeats = repeats
        rounding = _VALUES * np.sqrt(len(readout.v)) * readout.norm
        self._v_error = readout.tau / readout.bound + rounding if readout.sharp is None else readout.sharp
        self._heard: dict[bytes, float] = {}
        self.v = readout.v
        self.loudest = readout.v / readout.norm
        self.size = readout.norm
        self.longest = readout.bound * (1.0 - 1e-9)
        self.origin = np.zeros(len(readout.v))
        self.bias_size = 0.0
        self.strong = 0.0

    @property
    def width(self) -> int:
        return len(self.v)

    @property
    def tau(self) -> float:
        """How far off an answer can be, the oracle's own arithmetic included."""
        return float(
            self._readout.tau
            + (_VALUES * np.sqrt(self.width) + self._readout.relative) * self.longest * self.size
        )

    def sharpest(self, score_size: float) -> float:
        """The length of rows from which on the rounding of scores, with a vector z of this length, does more
        harm than the answers' errors."""
        rounding = _SCORES * np.sqrt(self.width) * max(score_size, 1e-300)
        absolute = np.sqrt(max(self._readout.tau, 1e-300) / (rounding * self.size))
        return float(
            max(
                absolute,
                min(_HARMLESS * self._readout.relative / rounding, _MODERATE / max(score_size, 1e-300)),
            )
        )

    def length_beside(self, b: Array) -> Array:
        """How long a may be beside the asking row b."""
        return np.asarray(self.longest - np.linalg.norm(b, axis=-1))

    def batch_size(self) -> int:
        """How many scores make a good batch."""
        return self._ledger.batch_size(3)

    def ask(
        self,
        P: Array,
        B: Array,
        heard: Array | None = None,
        spread: Array | float = SPREAD,
        asked: Array | None = None,
    ) -> tuple[Array, Array]:
        """Scores of a = A·p for the unit rows p of P beside the asking rows B (n, d) or (d,), and how far off
        they can be.

        heard: p·v, known to `spread` times the error of a unit row's value (None: as read). asked: b·v where
        it was asked for.
        """
        B = np.broadcast_to(B, P.shape)
        a, short = self.length_beside(B), np.linalg.norm(B, axis=1)
        answers = np.mean(
            [self._ledger.ask(odd_rows(a[:, None] * P, B)) for _ in range(self._repeats)], axis=0
        )
        heard = P @ self.v if heard is None else heard
        of_b, of_b_spread = (B @ self.v, SPREAD) if asked is None else (asked, 1.0)
        t, error = score_interval(
            answers - self._readout.c - of_b,
            self.tau + of_b_spread * short * self._v_error,
            a * heard,
            a * spread * self._v_error,
        )
        away = np.linalg.norm(B - self.origin, axis=1)
        return t, error + _SCORES * np.sqrt(self.width) * a * (self.bias_size + self.strong * away)

    def heard_by(self, p: Array) -> float:
        """p·v for a unit vector, asked once."""
        key = p.tobytes()
        if key not in self._heard:
            self._heard[key] = float(self.heard_each(p[None])[0])
        return self._heard[key]

    def heard_each(self, rows: Array) -> Array:
        """x·v for rows x, from one query each of nearly the longest norm; off by at most tau/R of the row's
        length."""
        if self._readout.sharp is not None:
            return np.asarray(rows @ self.v)
        lengths = np.linalg.norm(rows, axis=1)
        sizes = self._readout.bound * (1.0 - 1e-9) * (1.0 - 1e-3 * self._rng.random(len(rows)))
        units = rows / np.maximum(lengths, 1e-300)[:, None]
        answers = np.mean(
            [self._ledger.ask((sizes[:, None] * units)[:, None]) for _ in range(self._repeats)], axis=0
        )
        return np.asarray((answers - self._readout.c) / sizes * lengths)
