"""Answers off by up to tau: a as long as allowed, b short, so that the signal a·v dwarfs tau while the score
stays near one."""

from __future__ import annotations

from copy import copy

import numpy as np

from unsoftmax.arrays import EPS, Array, complement, rms
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import BoundedMeter
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.ladder import Moderate, climb
from unsoftmax.meters.probes.mirrored_rows import odd_rows, score_interval
from unsoftmax.meters.probes.moderate_grid import MODERATE_SCORE, Indices, moderate_scores
from unsoftmax.meters.probes.simplex import orthogonal_part, simplex
from unsoftmax.meters.readout import MeasuredReadout
from unsoftmax.outcomes import Unresolved

__all__ = ["ToleranceMeter"]

# smallest and largest part of a that is not carrier; the smallest is for carriers that have no score
_LEAST_PART, _LARGEST_PART = 0.05, 0.6
_PILOTS = 6  # columns whose forms choose the sizes of the others
_SPREAD = 3.0  # a direction chosen at random meets an error vector within three standard deviations
_ALONG_V = 0.2  # a carrier with a smaller part along v would make too small a signal
_WORTH_ASKING = 8  # probes of a column from which on b·v is worth a query of its own


class ToleranceMeter(BoundedMeter):
    """Measures aᵀWb and how far off it can be, when every answer may be off by `readout.tau`; no row is
    longer than `readout.bound`.

    A probe is a = R(c·p + s·g): the carrier p has a large product with v and makes the signal, g is what is
    measured. The g's are a simplex, so their sum removes what all probes have in common and their mean
    measures pᵀWb.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.6, 0.8]))
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.05))
    >>> meter = ToleranceMeter(ledger, MeasuredReadout(head.v, 0.0, 0.05, 1e4), np.random.default_rng(0))
    >>> W, error = meter.measure(None, np.eye(2))
    >>> bool((np.linalg.norm(W - head.W, axis=0) <= error).all() and error.max() < 1e-3)
    True
    """

    def __init__(
        self, ledger: Asker, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._ledger = ledger
        self._rng = rng
        self._repeats = repeats
        self._v = readout.v
        self._c = readout.c
        self._size = readout.norm
        self._bound = readout.bound * (1.0 - 1e-9)
        self._longest_b = self._bound / 3
        # the oracle's own arithmetic is in every answer, too
        self.tau = readout.tau + 8.0 * EPS * np.sqrt(len(readout.v)) * self._bound * self._size
        self._sharp = readout.sharp
        self._v_error = self.tau / self._bound if readout.sharp is None else readout.sharp
        self._along_v = readout.v / self._size
        self._along_v_read = self._products_with_v(self._along_v[None])[0]
        self._typical: float | None = None
        self._row: Array | None = None
        self._null: Array | None = None  # a direction z with vᵀWb = 0 for every b orthogonal to it

    @property
    def width(self) -> int:
        return len(self._v)

    def resolution(self) -> float:
        """What one probe leaves open of aᵀWb, for unit a and b of this head."""
        return float(2.5 * self.tau / (self._bound * self._size) * self.typical_score())

    def typical_score(self) -> float:
        """Root mean square of |gᵀWb| over unit vectors, found with a few queries when first called."""
        if self._typical is None:
            self._typical = self._find_typical()
        return self._typical

    def beside(self, direction: Array) -> ToleranceMeter:
        """The same meter for b's orthogonal to a unit vector z, when vᵀWb = 0 for all of them: the carrier
        then has no score of its own."""
        other = copy(self)
        other._keep_beside(direction)
        return other

    def _keep_beside(self, direction: Array) -> None:
        self._null = direction

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_zero: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """basisᵀWB and, for every column, the largest possible length of its error. See
        `BoundedMeter.measure`."""
        d = self.width
        carrier, inside, no_score = self._carrier(basis, B, rest_is_zero)
        rest = complement(carrier) if inside is None else inside
        usual = None if length is None else max(length / np.sqrt(rest.shape[1] + 1), self.typical_score() / 8)
        one_column = basis is None and not no_score and B.shape[1] == 1
        if one_column:
            usual = self._typical_beside(B)
        least = _LEAST_PART if no_score else _LARGEST_PART
        carried, values, carried_error, errors = self._columns(carrier, rest, B, least, usual)
        whole = rest @ values + np.outer(carrier, carried)
        if one_column and d > 2:
            return self._again_without_score(B, whole, np.hypot(carried_error, errors))
        return (whole if basis is None else basis.T @ whole), np.hypot(carried_error, errors)

    def _again_without_score(self, b: Array, first: Array, error: Array) -> tuple[Array, Array]:
        """A column in which the carrier has a score, again with a carrier orthogonal to its first
        estimate."""
        column = first[:, 0]
        length = float(np.linalg.norm(column))
        if length > 0.0:
            towards = column / length
            carrier = self._along_v - towards * (towards @ self._along_v)
            left = float(np.linalg.norm(carrier))
            if left > _ALONG_V and length > 2.0 * error[0]:
                carrier /= left
                rest = complement(carrier)
                usual = length / np.sqrt(self.width)
                carried, values, carried_error, errors = self._columns(carrier, rest, b, 0.25, usual)
                again = np.hypot(carried_error, errors)
                if again[0] < error[0]:
                    return rest @ values + np.outer(carrier, carried), again
        return first, error

    def _typical_beside(self, b: Array) -> float:
        """The score to expect of a probe of a column in which the carrier has a score, too."""
        carried = 0.0 if self._row is None else float(np.abs(self._row @ b).max())
        return float(max(self.typical_score(), carried * np.sqrt(1.0 - _LARGEST_PART**2) / _LARGEST_PART))

    def measure_beside(
        self, avoid: Array, b: Array, length: float, only: Array | None = None
    ) -> tuple[Array, float]:
        """The part of Wb that is orthogonal to `avoid`, expected to be of a small `length`, and the length of
        its error.

        With a carrier orthogonal to `avoid` too, b may be as long as a: that is how an estimate of W is
        refined. `only`: this direction alone.
        """
        towards = avoid / np.linalg.norm(avoid)
        taken = towards[:, None] if only is None else np.column_stack([towards, only])
        carrier = self._along_v
        for _ in range(2):  # once is not enough where hardly anything of it is left
            carrier = carrier - taken @ (taken.T @ carrier)
            carrier = carrier / np.linalg.norm(carrier)
        rest = complement(np.column_stack([carrier, towards])) if only is None else only[:, None]
        usual = length / np.sqrt(self.width)
        carried, values, carried_error, errors = self._columns(
            carrier, rest, b[:, None], _LARGEST_PART, usual
        )
        return rest @ values[:, 0] + (0.0 if only is not None else carrier * carried[0]), float(
            np.hypot(carried_error[0], errors[0])
        )

    def carrier_row(self) -> tuple[Array, float]:
        """z = Wᵀu for u = v/|v|, and the length of its error: one query a coordinate, with a = R·u."""
        basis = np.linalg.qr(self._rng.standard_normal((self.width, self.width)))[0].T
        carried, _, errors, _ = self._columns(self._along_v, np.empty((self.width, 0)), basis.T, 0.0)
        self._row = basis.T @ carried
        return self._row, float(np.linalg.norm(errors))

    def _carrier(self, basis: Array | None, B: Array, rest_is_zero: bool) -> tuple[Array, Array | None, bool]:
        """A carrier p, the directions beside it that are asked for, and whether pᵀWB is known to vanish."""
        no_score = self._null is not None and bool(np.abs(self._null @ B).max() < 1e-9)
        if basis is None:
            return self._along_v, None, no_score
        outside = self._along_v - basis @ (basis.T @ self._along_v)
        length = float(np.linalg.norm(outside))
        if no_score or not rest_is_zero or length < _ALONG_V:
            within = (
                np.linalg.qr(np.column_stack([self._along_v, basis]))[0][:, 1:]
                if length > 1e-9
                else orthogonal_part(basis, self._along_v)
            )
            return self._along_v, orthogonal_part(within, self._along_v), no_score
        return outside / length, basis, True

    def _columns(
        self, p: Array, N: Array, B: Array, least: float, usual: float | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """pᵀWB (n,), NᵀWB (k, n), and the largest error of each: a number per column, a length per column."""
        n, k = B.shape[1], N.shape[1]
        G = simplex(k, self._rng)
        p_v = self._along_v_read if p is self._along_v else self._products_with_v(p[None])[0]
        typical = usual
        if typical is None:
            inflated = np.sqrt(self.width / max(k, 1)) if 0 < k < self.width - 1 else 1.0
            typical = self.typical_score() * inflated
        first = n if n <= 2 or usual is not None else 1 if k else min(_PILOTS, n)
        parts = []
        for block in (slice(0, first), slice(first, n)):
            if block.start == block.stop:
                continue
            part = self._grid((p, p_v), G @ N.T, B[:, block].T, typical, least)
            parts.append(part)
            seen = (part[0] - part[0].mean(axis=1, keepdims=True)) / part[2] if k else part[0]
            if first < n and block.start == 0 and float(np.abs(seen).max()) > 0.0:
                typical = max(rms(seen), typical / (8.0 if k else 1.5))
        forms, errors = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
        scale = np.concatenate([np.full(len(x), s) for x, _, s in parts])
        c = np.sqrt(1.0 - scale**2)
        carried, carried_error = forms.mean(axis=1) / c, errors.mean(axis=1) / c
        if k == 0:
            return carried, np.empty((0, n)), carried_error, np.zeros(n)
        values = (forms @ G).T * (k / (k + 1)) / scale
        return carried, values, carried_error, np.sqrt((errors**2).sum(axis=1) * k / (k + 1)) / scale

    def _grid(
        self, carrier: tuple[Array, float], G: Array, B: Array, typical: float, least: float
    ) -> tuple[Array, Array, float]:
        """(c·p + s·g)ᵀWb for every g and b, their errors, and s; saturated probes again with a shorter b.

        carrier: p, and its product with v.
        """
        p, p_v = carrier
        n, k = len(B), len(G)
        product = MODERATE_SCORE / (self._bound * max(typical, 1e-300))
        s = float(np.clip(np.sqrt(product / self._bound), least, _LARGEST_PART)) if least > 0.0 else 0.0
        start = min(product / s if s else product, self._longest_b)
        c = np.sqrt(1.0 - s * s)
        directions, seen = c * p + s * G, c * p_v + s * (G @ self._v)
        seen_error = (c + _SPREAD * s) * self._v_error
        asked = k >= _WORTH_ASKING
        b_v, b_error = (self._products_with_v(B), 1.0) if asked else (B @ self._v, _SPREAD)

        def look(j: Indices, i: Indices, b: Array) -> tuple[Array, Array]:
            a = self._bound - b
            answers = self._ask(a[:, None] * directions[i], b[:, None] * B[j])
            signal_error = self.tau + b_error * b * self._v_error
            return score_interval(answers - self._c - b * b_v[j], signal_error, a * seen[i], a * seen_error)

        def gain(b: Array) -> Array:
            return np.asarray((self._bound - b) * b)

        found = moderate_scores(look, np.full((n, k), start), gain, self._longest_b)
        if not np.isfinite(found.errors).all():
            raise self._nothing_left()
        return found.scores / gain(found.sizes), found.errors / gain(found.sizes), s

    def _nothing_left(self) -> Unresolved:
        needed = 40.0 * self.tau / self._size
        longer = f"rows of norm {needed:.2g} or more, or a smaller tolerance, would help"
        hint = (
            longer
            if needed > self._bound
            else "a smaller tolerance would help, if this is one head at all: "
            "no asking row made its scores moderate"
        )
        return Unresolved(
            f"answers off by {self.tau:.2g} leave nothing of scores asked with rows of norm "
            f"{self._bound:.3g}; {hint}"
        )

    def _ask(self, A: Array, B: Array) -> Array:
        def ask(part: slice) -> Array:
            batch = odd_rows(A[part], B[part])
            return np.asarray(np.mean([self._ledger.ask(batch) for _ in range(self._repeats)], axis=0))

        return in_parts(ask, len(A), self._ledger.batch_size(3))

    def _products_with_v(self, rows: Array) -> Array:
        """x·v for unit rows x, from one query each of nearly the longest norm; off by at most tau/R."""
        if self._sharp is not None:
            return rows @ self._v
        sizes = self._bound * (1.0 - 1e-3 * self._rng.random(len(rows)))
        answers = np.mean(
            [self._ledger.ask((sizes[:, None] * rows)[:, None]) for _ in range(self._repeats)], axis=0
        )
        return np.asarray((answers - self._c) / sizes)

    def _find_typical(self) -> float:
        """Root mean square of a few random forms, at a length of b where they are moderate."""
        count = max(1, min(4, self.width - 1))
        beside = complement(self._along_v)[:, :count].T if self.width > 1 else np.zeros((1, 1))
        G = 0.8 * self._along_v + 0.6 * beside
        scores = np.zeros(count)

        def look(b: float) -> float:
            a = self._bound - b
            B = np.linalg.qr(self._rng.standard_normal((self.width, count)))[0].T
            answers = self._ask(a * G, b * B)
            scores[:], errors = score_interval(
                answers - self._c - b * (B @ self._v),
                np.full(count, 2.0 * self.tau),
                a * (G @ self._v),
                np.full(count, 4.0 * self.tau),
            )
            return Moderate().factor(scores, errors)

        b = climb(look, 2.0 * MODERATE_SCORE / self._bound, self._longest_b)
        return max(rms(scores), 0.2) / ((self._bound - b) * b)
