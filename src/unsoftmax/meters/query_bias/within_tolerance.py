"""Answers off by up to tau, and a query bias: z = Wb + w0 measured beside a carrier whose score is zero."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, complement, rms
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import BoundedMeter
from unsoftmax.meters.probes.ladder import Moderate, climb
from unsoftmax.meters.probes.moderate_grid import MODERATE_SCORE
from unsoftmax.meters.probes.simplex import orthogonal_part
from unsoftmax.meters.query_bias.score_intervals import ScoreIntervals
from unsoftmax.meters.query_bias.score_vectors import ScoreVector, ScoreVectors, largest_part
from unsoftmax.meters.readout import MeasuredReadout
from unsoftmax.outcomes import Unresolved

__all__ = ["BiasedToleranceMeter"]

_ORIGINS = 14  # asking rows tried, from 8^-14 to 1 of a quarter of the longest
_LENGTHS = 3  # measured: one suffices for 66 of 90 heads, two for the others
_DOMINANT = 4.0  # how much longer W b should be than the bias, where rows are long enough
_PARTS = (1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 0.07, -0.07)  # of b's length: each has another z
_LEAK = 0.3  # score that a b orthogonal to the row may still give the carrier
_PASSES = 6  # measured: none is needed for 92 %, one for the others, over 90 heads
_CARRIED = 1.0  # score of the carrier from which on it takes the room of what is measured
# these scores are used as they are, not only to find a size: they should be well above their errors
_NEAR_ONE = Moderate(faint=0.7, aim=1.0, least=1.3)


class BiasedToleranceMeter(BoundedMeter):
    """Measures aᵀWb and how far off it can be, when scores are aᵀ(Wb + w0) and every answer may be off by
    `readout.tau`.

    z = Wb + w0 is measured beside a carrier p with pᵀw0 = 0, whose score is then zero for every b orthogonal
    to `row` = Wᵀp. `bias` is z at the row `origin` (zeros, unless v is along w0); what is measured elsewhere,
    less the bias, is W's. Building it asks for all of these.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.diag([1.0, 2.0, 3.0]), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, -1.0]))
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.01))
    >>> readout = MeasuredReadout(head.v, 0.0, 0.01, 1e4)
    >>> meter = BiasedToleranceMeter(ledger, readout, np.random.default_rng(0))
    >>> bool(np.linalg.norm(meter.bias - head.w0) <= meter.bias_error < 1e-4)
    True
    >>> b = meter.null_basis()[:, :1]
    >>> column, error = meter.measure(None, b)
    >>> bool(np.linalg.norm(column - head.W @ b) <= error[0] < 1e-4)
    True
    """

    def __init__(
        self, ledger: Asker, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._rng = rng
        self._scores = ScoreIntervals(ledger, readout, rng, repeats=repeats)
        self._vectors = ScoreVectors(self._scores, rng)
        found = self._find_bias()
        self._carrier, self.bias, self.bias_error = found.carrier, found.z, found.error
        self._find_row()
        self._typical = self._find_typical()
        self.reach = self._choose_reach()
        self._sharpen_row(self.reach)

    @property
    def width(self) -> int:
        return self._scores.width

    @property
    def origin(self) -> Array:
        """The asking row at which `bias` was measured."""
        return self._scores.origin

    def resolution(self) -> float:
        """What one probe leaves open of aᵀWb, for unit a and b."""
        scores = np.hypot(self._scores.bias_size / np.sqrt(self.width), self._typical * self.reach)
        return float(
            2.5 * self._scores.tau / (self._scores.longest * self._scores.size) * scores / self.reach
        )

    @property
    def row_direction(self) -> Array:
        """The unit b for which the carrier's score is largest: all that `null_basis` leaves out."""
        length = float(np.linalg.norm(self.row))
        return self.row / length if length > 0.0 else np.eye(self.width)[0]

    def null_basis(self) -> Array:
        """An orthonormal basis (d, d-1), turned at random, of the b's for which the carrier has no score."""
        basis = complement(self.row_direction)
        return np.asarray(
            basis @ np.linalg.qr(self._rng.standard_normal((basis.shape[1], basis.shape[1])))[0]
        )

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_zero: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """basisᵀWB and, for every column, the largest possible length of its error. See
        `BoundedMeter.measure`.

        b's that are not orthogonal to `row` need a carrier each (`measure_alone`).
        """
        apart = self._scores.longest * self.reach * np.abs(self.row @ B) > _CARRIED
        if not apart.any():
            return self._measure(basis, B, rest_is_zero=rest_is_zero)
        values = np.empty((self.width if basis is None else basis.shape[1], B.shape[1]))
        errors = np.empty(B.shape[1])
        if not apart.all():
            values[:, ~apart], errors[~apart] = self._measure(basis, B[:, ~apart], rest_is_zero=rest_is_zero)
        for j in np.flatnonzero(apart):
            column, errors[j] = self.measure_alone(B[:, j])
            values[:, j] = column if basis is None else basis.T @ column
        return values, errors

    def _measure(self, basis: Array | None, B: Array, *, rest_is_zero: bool) -> tuple[Array, Array]:
        p = self._carrier
        inside = complement(p) if basis is None else orthogonal_part(basis, p)
        k = inside.shape[1]
        of_W = self._typical**2 * (self.width if basis is None or rest_is_zero else k)
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
        raise self._no_carrier()

    def _find_bias(self) -> ScoreVector:
        """z at the origin, and its carrier, with rows no longer than the oracle's own rounding of so large
        scores allows."""
        scores = self._scores
        bound = scores.longest
        scores.keep_to(min(bound, max(1.0, scores.sharpest(1.0))))
        for _ in range(_LENGTHS):
            found = self._at_some_origin()
            scores.learn_sizes(bias=float(np.linalg.norm(found.z)))
            best = max(
                scores.sharpest((1.0 + _DOMINANT) * scores.bias_size), 10.0 / max(scores.bias_size, 1e-300)
            )
            best = min(bound, best)
            if 0.5 * scores.longest <= best <= 2.0 * scores.longest:
                return found
            scores.keep_to(best)
        again = self._vectors.alone(scores.origin)  # the length of rows was changed last
        if again is None:
            raise self._no_carrier()
        return again

    def _at_some_origin(self) -> ScoreVector:
        """z at the origin; where v is along it, at another asking row, which becomes the origin."""
        scores = self._scores
        found = self._vectors.alone(scores.origin)
        for k in range(_ORIGINS):
            if found is not None:
                return found
            turned = self._rng.standard_normal(self.width)
            scores.move_to(turned / np.linalg.norm(turned) * scores.longest / 4.0 * 8.0 ** (k + 1 - _ORIGINS))
            found = self._vectors.alone(scores.origin)
        if found is None:
            raise self._no_carrier()
        return found

    def _find_row(self) -> None:
        """Wᵀp for the carrier p and the typical error of an entry, from b's with moderate scores."""
        basis = np.linalg.qr(self._rng.standard_normal((self.width, self.width)))[0]
        longest = self._scores.longest / 3
        beta = climb(lambda size: _NEAR_ONE.factor(*self._carried(size * basis[:4])), 1.0, longest)
        values, errors = self._carried_forms(beta * basis)
        self._scores.learn_sizes(column=rms(values) / beta * self.width)
        self.row, self.row_error = basis.T @ values / beta, rms(errors) / beta

    def _sharpen_row(self, beta: float) -> None:
        """The row again, until b's of length beta orthogonal to it leave the carrier without a score: every
        pass may ask with longer ones than the last."""
        for _ in range(_PASSES):
            score = self._scores.longest * self.row_error
            if score * beta <= _LEAK:
                return
            length = min(beta, 0.5 / score)
            basis = self.null_basis()
            values, errors = self._carried_forms(length * basis.T)
            self.row, self.row_error = self.row + basis @ (values / length), rms(errors) / length

    def _carried_forms(self, B: Array) -> tuple[Array, Array]:
        """pᵀWb for the carrier p, and the errors: its score at the origin is taken off."""
        rows = np.vstack([np.zeros(self.width), B])
        t, error = self._carried(rows)
        a = self._scores.length_beside(self.origin + rows)
        # saturated: the order of magnitude is all that is known
        error = np.where(np.isfinite(error), error, np.abs(t))
        return t[1:] / a[1:] - t[0] / a[0], error[1:] / a[1:] + error[0] / a[0]

    def _carried(self, B: Array) -> tuple[Array, Array]:
        P = np.tile(self._carrier, (len(B), 1))
        p_v = np.full(len(B), self._scores.product_with_v(self._carrier))
        return self._scores.ask(P, self.origin + B, p_v, 1.0)

    def _find_typical(self) -> float:
        """Root mean square of gᵀWb over unit vectors, from a few of them beside the carrier."""
        d, scores = self.width, self._scores
        few, rest = min(4, d - 1), complement(self._carrier)
        s = min(
            largest_part(float(self._carrier @ scores.along_v)),
            0.5 * np.sqrt(d) / (scores.longest * max(scores.bias_size, 1e-300)),
        )
        start = 0.5 * np.sqrt(d) / (scores.longest * s * max(float(np.linalg.norm(self.row)), 1e-300))
        moved, lengths = np.zeros(few), np.ones(2)

        def look(beta: float) -> float:
            self._sharpen_row(beta)
            B = self.origin + beta * self.null_basis()[:, :few].T
            beside = self._rng.standard_normal((few, d - 1)) @ rest.T
            P = np.sqrt(1.0 - s * s) * self._carrier + s * beside / np.linalg.norm(beside, axis=1)[:, None]
            t, error = scores.ask(P, B)
            moved[:] = t - scores.length_beside(B) * (P @ self.bias)
            lengths[:] = scores.length_beside(B[0]), np.linalg.norm(B[0] - self.origin)
            return _NEAR_ONE.factor(moved, error)

        climb(look, start, scores.longest / 2)
        typical = float(max(rms(moved), 0.2) / (lengths[0] * s * lengths[1]))
        scores.learn_sizes(column=3.0 * typical * np.sqrt(d))
        return typical

    def _choose_reach(self) -> float:
        """Length of b: W b several times the bias and moderate scores, as far as that leaves room for a."""
        scores = self._scores
        share = scores.bias_size / (self._typical * np.sqrt(self.width))
        most = largest_part(float(self._carrier @ scores.along_v))
        faint = MODERATE_SCORE / (0.5 * most * scores.longest * self._typical)
        lengths = min(max(_DOMINANT * share, faint), scores.longest / 2) * np.geomspace(0.05, 1.0, 40)
        errors = (
            (np.hypot(1.0, share / lengths) + share / lengths)
            / np.minimum(1.0, lengths / faint)
            / (1.0 - lengths / scores.longest)
        )
        return float(lengths[int(np.argmin(errors))])

    def _no_carrier(self) -> Unresolved:
        return Unresolved(
            "no direction near v was found on which the query bias has no score, with rows of norm "
            f"{self._scores.longest:.3g} and answers off by {self._scores.tau:.2g}; longer rows "
            "(input_bound) or a smaller tolerance would help"
        )
