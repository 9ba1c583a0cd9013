"""Scores of long rows around one asking row, from answers off by up to tau, each with how far off it can
be."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Asker
from unsoftmax.meters.probes.mirrored_rows import odd_rows, score_interval
from unsoftmax.meters.readout import MeasuredReadout

__all__ = ["SPREAD", "ScoreIntervals"]

SPREAD = 3.0  # a direction chosen at random meets an error vector within three standard deviations
# the oracle's own rounding of values and of scores, times the root of the width
_VALUES, _SCORES = 8.0 * EPS, 3.0 * EPS
_HARMLESS = 0.1  # part of the answers' relative error that the rounding of scores may reach
_MODERATE = 1e4  # errors that grow with the answers gain nothing from scores beyond


class ScoreIntervals:
    """Asks [b+a; b-a; b] with a as long as allowed, and reads aᵀz, z = Wb + w0.

    longest: norm of the longest row, at most the readout's bound. A score is only computed to float64
    rounding of its parts, and long rows make these large: `learn_sizes` says how long w0 and Wb are, as far
    as it is known. origin: the asking row at which the length of the bias was measured.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.eye(2), np.array([0.6, 0.8]), np.array([1.0, -0.75]))
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.01))
    >>> scores = ScoreIntervals(ledger, MeasuredReadout(head.v, 0.0, 0.01, 1e3), np.random.default_rng(0))
    >>> t, error = scores.ask(np.array([[0.6, 0.8]]), np.array([0.0, 0.0]))
    >>> bool(abs(t[0]) <= error[0] < 1e-4)
    True
    """

    def __init__(
        self, ledger: Asker, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._ledger = ledger
        self._readout = readout
        self._rng = rng
        self._repeats = repeats
        rounding = _VALUES * np.sqrt(len(readout.v)) * readout.norm
        self._v_error = readout.tau / readout.bound + rounding if readout.sharp is None else readout.sharp
        self._products: dict[bytes, float] = {}
        self.v = readout.v
        self.along_v = readout.v / readout.norm
        self.size = readout.norm
        self.longest = readout.bound * (1.0 - 1e-9)
        self.origin = np.zeros(len(readout.v))
        self.bias_size = 0.0
        self._column_size = 0.0

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

    def keep_to(self, longest: float) -> None:
        """No row is longer from now on."""
        self.longest = longest

    def move_to(self, origin: Array) -> None:
        """Another asking row at which the bias is measured."""
        self.origin = origin

    def learn_sizes(self, *, bias: float | None = None, column: float = 0.0) -> None:
        """The length of the bias, and a length of Wb for unit b's (the largest counts)."""
        self.bias_size = self.bias_size if bias is None else bias
        self._column_size = max(self._column_size, column)

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
        p_v: Array | None = None,
        spread: Array | float = SPREAD,
        b_v: Array | None = None,
    ) -> tuple[Array, Array]:
        """Scores of a = A·p for the unit rows p of P beside the asking rows B (n, d) or (d,), and how far off
        they can be.

        p_v: p·v, known to `spread` times the error of a unit row's product (None: as read). b_v: b·v where it
        was asked for.
        """
        B = np.broadcast_to(B, P.shape)
        a, short = self.length_beside(B), np.linalg.norm(B, axis=1)
        answers = self._mean_answers(odd_rows(a[:, None] * P, B))
        p_v = P @ self.v if p_v is None else p_v
        of_b, of_b_spread = (B @ self.v, SPREAD) if b_v is None else (b_v, 1.0)
        t, error = score_interval(
            answers - self._readout.c - of_b,
            self.tau + of_b_spread * short * self._v_error,
            a * p_v,
            a * spread * self._v_error,
        )
        away = np.linalg.norm(B - self.origin, axis=1)
        rounding = _SCORES * np.sqrt(self.width) * a * (self.bias_size + self._column_size * away)
        return t, error + rounding

    def product_with_v(self, p: Array) -> float:
        """p·v for a unit vector, asked once."""
        key = p.tobytes()
        if key not in self._products:
            self._products[key] = float(self.products_with_v(p[None])[0])
        return self._products[key]

    def products_with_v(self, rows: Array) -> Array:
        """x·v for rows x, from one query each of nearly the longest norm; off by at most tau/R of the row's
        length."""
        if self._readout.sharp is not None:
            return np.asarray(rows @ self.v)
        lengths = np.linalg.norm(rows, axis=1)
        sizes = self._readout.bound * (1.0 - 1e-9) * (1.0 - 1e-3 * self._rng.random(len(rows)))
        units = rows / np.maximum(lengths, 1e-300)[:, None]
        answers = self._mean_answers((sizes[:, None] * units)[:, None])
        return np.asarray((answers - self._readout.c) / sizes * lengths)

    def _mean_answers(self, batch: Array) -> Array:
        return np.asarray(np.mean([self._ledger.ask(batch) for _ in range(self._repeats)], axis=0))
