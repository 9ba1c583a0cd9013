"""Answers off by up to tau, and a query bias: scores are aᵀ(Wb + w0), and a long a must not hear the bias."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Ledger
from unsoftmax.meters.base import forms_by_projection
from unsoftmax.meters.one_head.within_tolerance import MeasuredReadout
from unsoftmax.meters.query_bias.score_intervals import OddScores
from unsoftmax.meters.query_bias.score_vectors import SCORE, ScoreVectors, complement, largest_part, rms
from unsoftmax.outcomes import Unresolved

__all__ = ["BiasedToleranceMeter"]

_LADDER = 60
_ORIGINS = 14
_LENGTHS = 3
_DOMINANT = 4.0  # how much longer W b should be than the bias, where rows are long enough
_PARTS = (1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 0.07, -0.07)  # of b's length: each has another z
_LEAK = 0.3  # score that the carrier may hear of b
_PASSES = 6
_CARRIED = 1.0  # score of the carrier from which on it takes the room of what is measured


class BiasedToleranceMeter:
    """Measures aᵀWb and how far off it can be, when scores are aᵀ(Wb + w0) and every answer may be off by
    `readout.tau`.

    z = Wb + w0 is measured beside a carrier p that is silent for the bias, so also for every b orthogonal to
    `row` = Wᵀp. `bias` is z at the row `origin` (zeros, unless v is along w0); what is measured elsewhere,
    less the bias, is W's.

    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.diag([1.0, 2.0, 3.0]), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, -1.0]))
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.01))
    >>> meter = BiasedToleranceMeter(ledger, MeasuredReadout(head.v, 0.0, 0.01, 1e4), np.random.default_rng(
    ...     0))
    >>> bool(np.linalg.norm(meter.bias - head.w0) <= meter.bias_error < 1e-4)
    True
    >>> b = meter.quiet_basis()[:, :1]
    >>> column, error = meter.measure(None, b)
    >>> bool(np.linalg.norm(column - head.W @ b) <= error[0] < 1e-4)
    True
    """

    def __init__(
        self, ledger: Ledger, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._rng = rng
        self._scores = OddScores(ledger, readout, rng, repeats=repeats)
        self._vectors = ScoreVectors(self._scores, rng)
        self._find_bias()
        self._find_row()
        self._typical = self._find_typical()
        self.reach = self._choose_reach()
        self._silence(self.reach)

    @property
    def width(self) -> int:
        return self._scores.width

    @property
    def origin(self) -> Array:
        """The asking row at which `bias` was measured."""
        return self._scores.origin

    @property
    def facing(self) -> Array | None:
        return None

    def resolution(self) -> float:
        """What one probe leaves open of aᵀWb, for unit a and b."""
        scores = np.hypot(self._scores.bias_size / np.sqrt(self.width), self._typical * self.reach)
        return float(
            2.5 * self._scores.tau / (self._scores.longest * self._scores.size) * scores / self.reach
        )

    @property
    def loud_direction(self) -> Array:
        """The unit b that the carrier hears most: all that `quiet_basis` leaves out."""
        length = float(np.linalg.norm(self.row))
        return self.row / length if length > 0.0 else np.eye(self.width)[0]

    def quiet_basis(self) -> Array:
        """An orthonormal basis (d, d-1), turned at random, of the b's that the carrier is silent for."""
        basis = complement(self.loud_direction)
        return np.asarray(
            basis @ np.linalg.qr(self._rng.standard_normal((basis.shape[1], basis.shape[1])))[0]
        )

    def forms(self, A: Array, B: Array) -> Array:
        """aᵀWb for each pair, each from two probes."""
        return forms_by_projection(self, A, B)

    def project(self, basis: Array | None, B: Array, *, rest_is_silent: bool = False) -> Array:
        return self.measure(basis, B, rest_is_silent=rest_is_silent)[0]

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_silent: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """basisᵀWB and, for every column, the largest possible length of its error. See
        `BoundedMeter.measure`.

        b's that are not orthogonal to `row` need a carrier each (`measure_alone`).
        """
        apart = self._scores.longest * self.reach * np.abs(self.row @ B) > _CARRIED
        if not apart.any():
            return self._measure(basis, B, rest_is_silent=rest_is_silent)
        values = np.empty((self.width if basis is None else basis.shape[1], B.shape[1]))
        errors = np.empty(B.shape[1])
        if not apart.all():
            values[:, ~apart], errors[~apart] = self._measure(
                basis, B[:, ~apart], rest_is_silent=rest_is_silent
            )
        for j in np.flatnonzero(apart):
            column, errors[j] = self.measure_alone(B[:, j])
            values[:, j] = column if basis is None else basis.T @ column
        return values, errors

    def _measure(self, basis: Array | None, B: Array, *, rest_is_silent: bool) -> tuple[Array, Array]:
        p = self._carrier
        inside = complement(p) if basis is None else _beside(basis, p)
        k = inside.shape[1]
        of_W = self._typical**2 * (self.width if basis is None or rest_is_silent else k)
        typical = float(np.sqrt((np.sum((inside.T @ self.bias) ** 2) + self.reach**2 * of_W) / max(k, 1)))
        along, values, error = self._vectors.measure(p, inside, self.origin + self.reach * B.T, typical)
        whole = inside @ values + np.outer(p, along) - self.bias[:, None]
        part = 1.0 if basis is None else min(1.0, 2.0 * np.sqrt((basis.shape[1] + 1) / self.width))
        return (whole if basis is None else basis.T @ whole) / self.reach, (
            error + part * self.bias_error
        ) / self.reach

    def measure_alone(self, b: Array) -> tuple[Array, float]:
        """Wb and the length of its error for any unit b, with a carrier of its own: about twice the queries
        of a column."""
        for part in _PARTS:
            found = self._vectors.alone(self.origin + part * self.reach * b)
            if found is not None:
                return (found.z - self.bias) / (part * self.reach), (found.error + self.bias_error) / abs(
                    part * self.reach
                )
        raise self._nothing_silent()

    def _find_bias(self) -> None:
        """z at the origin, and its carrier, with rows no longer than the oracle's own rounding of so large
        scores allows."""
        scores = self._scores
        bound = scores.longest
        scores.longest = min(bound, max(1.0, scores.sharpest(1.0)))
        for _ in range(_LENGTHS):
            found = self._vectors.alone(scores.origin)
            for k in range(_ORIGINS):  # v along the bias: another asking row has another z
                if found is not None:
                    break
                turned = self._rng.standard_normal(self.width)
                scores.origin = (
                    turned / np.linalg.norm(turned) * scores.longest / 4.0 * 8.0 ** (k + 1 - _ORIGINS)
                )
                found = self._vectors.alone(scores.origin)
            if found is None:
                raise self._nothing_silent()
            self._carrier, self.bias, self.bias_error = found.carrier, found.z, found.error
            scores.bias_size = float(np.linalg.norm(found.z))
            best = min(
                bound,
                max(
                    scores.sharpest((1.0 + _DOMINANT) * scores.bias_size),
                    10.0 / max(scores.bias_size, 1e-300),
                ),
            )
            if 0.5 * scores.longest <= best <= 2.0 * scores.longest:
                return
            scores.longest = best
        self._carrier_and_bias_again()

    def _carrier_and_bias_again(self) -> None:
        """The bias once more, when the length of rows was changed last."""
        found = self._vectors.alone(self._scores.origin)
        if found is None:
            raise self._nothing_silent()
        self._carrier, self.bias, self.bias_error = found.carrier, found.z, found.error

    def _find_row(self) -> None:
        """Wᵀp for the carrier p and the typical error of an entry, from b's at which its score is neither
        faint nor saturated."""
        basis = np.linalg.qr(self._rng.standard_normal((self.width, self.width)))[0]
        longest = self._scores.longest / 3
        beta = min(1.0, longest)
        for _ in range(_LADDER):
            t, error = self._carried(beta * basis[:4])
            larger = _next_size(t, error)
            if larger == 1.0 or (larger > 1.0 and beta >= longest):
                break
            beta = min(beta * larger, longest)
        values, errors = self._carried_forms(beta * basis)
        self._scores.strong = max(self._scores.strong, rms(values) / beta * self.width)
        self.row, self.row_error = basis.T @ values / beta, rms(errors) / beta

    def _silence(self, beta: float) -> None:
        """The row again, until b's of length beta orthogonal to it are not heard: every pass may ask with
        longer ones than the last."""
        for _ in range(_PASSES):
            heard = self._scores.longest * self.row_error
            if heard * beta <= _LEAK:
                return
            length = min(beta, 0.5 / heard)
            basis = self.quiet_basis()
            values, errors = self._carried_forms(length * basis.T)
            self.row, self.row_error = self.row + basis @ (values / length), rms(errors) / length

    def _carried_forms(self, B: Array) -> tuple[Array, Array]:
        """pᵀWb for the carrier p, and the errors: what is heard at the origin is taken off."""
        rows = np.vstack([np.zeros(self.width), B])
        t, error = self._carried(rows)
        a = self._scores.length_beside(self.origin + rows)
        error = np.where(
            np.isfinite(error), error, np.abs(t)
        )  # saturated: the order of magnitude is all that is known
        return t[1:] / a[1:] - t[0] / a[0], error[1:] / a[1:] + error[0] / a[0]

    def _carried(self, B: Array) -> tuple[Array, Array]:
        P = np.tile(self._carrier, (len(B), 1))
        return self._scores.ask(
            P, self.origin + B, np.full(len(B), self._scores.heard_by(self._carrier)), 1.0
        )

    def _find_typical(self) -> float:
        """Root mean square of gᵀWb over unit vectors, from a few of them beside the carrier."""
        d, scores = self.width, self._scores
        few, rest = min(4, d - 1), complement(self._carrier)
        s = min(
            largest_part(float(self._carrier @ scores.loudest)),
            0.5 * np.sqrt(d) / (scores.longest * max(scores.bias_size, 1e-300)),
        )
        limit = scores.longest / 2
        beta = min(
            0.5 * np.sqrt(d) / (scores.longest * s * max(float(np.linalg.norm(self.row)), 1e-300)), limit
        )
        for _ in range(_LADDER):
            self._silence(beta)
            B = self.origin + beta * self.quiet_basis()[:, :few].T
            beside = self._rng.standard_normal((few, d - 1)) @ rest.T
            P = np.sqrt(1.0 - s * s) * self._carrier + s * beside / np.linalg.norm(beside, axis=1)[:, None]
            t, error = scores.ask(P, B)
            moved = t - scores.length_beside(B) * (P @ self.bias)
            larger = _next_size(moved, error)
            if larger == 1.0 or (larger > 1.0 and beta >= limit):
                break
            beta = min(beta * larger, limit)
        strength = float(
            max(rms(moved), 0.2) / (scores.length_beside(B[0]) * s * np.linalg.norm(B[0] - self.origin))
        )
        scores.strong = max(scores.strong, 3.0 * strength * np.sqrt(d))
        return strength

    def _choose_reach(self) -> float:
        """Length of b: W b several times the bias and scores that are heard, as far as that leaves room for
        a."""
        scores = self._scores
        share = scores.bias_size / (self._typical * np.sqrt(self.width))
        most = largest_part(float(self._carrier @ scores.loudest))
        faint = SCORE / (0.5 * most * scores.longest * self._typical)
        lengths = min(max(_DOMINANT * share, faint), scores.longest / 2) * np.geomspace(0.05, 1.0, 40)
        errors = (
            (np.hypot(1.0, share / lengths) + share / lengths)
            / np.minimum(1.0, lengths / faint)
            / (1.0 - lengths / scores.longest)
        )
        return float(lengths[int(np.argmin(errors))])

    def _nothing_silent(self) -> Unresolved:
        return Unresolved(
            "no loud direction was found that the query bias does not hear, with rows of norm "
            f"{self._scores.longest:.3g} and answers off by "
            f"{self._scores.tau:.2g}; longer rows (input_bound) or a smaller tolerance would help"
        )


def _next_size(scores: Array, errors: Array) -> float:
    """By how much to lengthen b so that the largest score is near one; 1 where it is."""
    largest = float(np.abs(scores).max())
    if largest > 2.5 or not np.isfinite(errors).all():
        return 0.3 if largest < 4.0 else 1.0 / 16
    return float(np.clip(1.0 / max(largest, 1e-9), 1.3, 16.0)) if largest < 0.7 else 1.0


def _beside(basis: Array, p: Array) -> Array:
    """An orthonormal basis of the part of span(basis, p) that is orthogonal to p."""
    left, values, _ = np.linalg.svd(basis - np.outer(p, p @ basis), full_matrices=False)
    return np.asarray(left[:, values > 1e-9])
