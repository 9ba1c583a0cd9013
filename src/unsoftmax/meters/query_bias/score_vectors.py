"""z = Wb + w0 for one asking row b: a long carrier whose score is zero, and a short part beside it that is
measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, complement, rms
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.ladder import Moderate, climb
from unsoftmax.meters.probes.moderate_grid import MODERATE_SCORE, GridScores, Indices, moderate_scores
from unsoftmax.meters.probes.simplex import simplex
from unsoftmax.meters.query_bias.score_intervals import SPREAD, ScoreIntervals
from unsoftmax.meters.query_bias.zero_score_direction import zero_score_between, zero_score_carrier
from unsoftmax.outcomes import Unresolved

__all__ = ["ScoreVector", "ScoreVectors", "largest_part"]

_LARGEST_PART = 0.6  # of a that is not carrier
_LEAST_ALONG_V = 0.25  # a carrier with less would make a signal no better than the first one's
_SMALLEST = 1e-3  # keeps a quotient finite; carriers have a part of 0.25 or more along v
_FAR = 0.1  # of the longest row: from there on, b·v is worth a query
_WORTH_ASKING = 8  # probes of an asking row from which on the same holds


@dataclass(frozen=True)
class ScoreVector:
    """z at one asking row, the length of its error, and a direction near v whose score is zero there."""

    z: Array
    error: float
    carrier: Array


class ScoreVectors:
    """Measures z = Wb + w0 with probes a = A(c·p + s·g): the carrier p has pᵀz near zero and p·v near |v|,
    and sA·gᵀz is near one.

    The error of z is that of one answer against A|v|, however long z is, because the carrier makes the
    signal.

    >>> from unsoftmax import Ledger, SingleHead, WithinTolerance, as_oracle
    >>> from unsoftmax.meters import MeasuredReadout
    >>> head = SingleHead(np.eye(3), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, -1.0]))
    >>> rng = np.random.default_rng(0)
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.01))
    >>> scores = ScoreIntervals(ledger, MeasuredReadout(head.v, 0.0, 0.01, 1e4), rng)
    >>> found = ScoreVectors(scores, rng).alone(np.zeros(3))
    >>> bool(np.linalg.norm(found.z - head.w0) <= found.error < 1e-5)
    True
    """

    def __init__(self, scores: ScoreIntervals, rng: np.random.Generator) -> None:
        self._scores = scores
        self._rng = rng

    def alone(self, b: Array) -> ScoreVector | None:
        """z at one asking row, with a carrier that is looked for; None when no direction near v has score
        zero there."""
        scores = self._scores
        p = zero_score_carrier(lambda P: scores.ask(P, b), scores.along_v, self._rng)
        if p is None:
            return None
        first = self._whole(p, b, self._typical(p, b))
        length = float(np.linalg.norm(first.z))
        if first.error > 0.5 * length:
            return first
        towards = first.z / length
        best = scores.along_v - towards * (towards @ scores.along_v)  # of all directions orthogonal to z
        left = float(np.linalg.norm(best))
        if left <= max(_LEAST_ALONG_V, float(p @ scores.along_v)):
            return first
        off = min(2.0 * first.error / length, 0.5)
        ends = [(best / left + sign * off * towards) / np.hypot(1.0, off) for sign in (1.0, -1.0)]
        carrier = zero_score_between(lambda P: scores.ask(P, b), *ends)
        if carrier is None:
            return first
        again = self._whole(carrier, b, length / np.sqrt(scores.width))
        return again if again.error < first.error else first

    def _whole(self, p: Array, b: Array, typical: float) -> ScoreVector:
        rest = complement(p)
        along, values, error = self.measure(p, rest, b[None], typical)
        return ScoreVector(rest @ values[:, 0] + along[0] * p, float(error[0]), p)

    def _typical(self, p: Array, b: Array) -> float:
        """Root mean square of gᵀz over unit g beside the carrier, from a few of them."""
        most = largest_part(float(p @ self._scores.along_v))
        rest = complement(p)
        scores = np.zeros(4)

        def look(s: float) -> float:
            beside = self._rng.standard_normal((4, rest.shape[1])) @ rest.T
            P = np.sqrt(1.0 - s * s) * p + s * beside / np.linalg.norm(beside, axis=1)[:, None]
            scores[:], errors = self._scores.ask(P, b)
            return Moderate().factor(scores, errors)

        s = climb(look, most, most)
        return max(rms(scores), 0.2) / (float(self._scores.length_beside(b)) * s)

    def measure(self, p: Array, N: Array, B: Array, typical: float) -> tuple[Array, Array, Array]:
        """pᵀz (n,) and Nᵀz (k, n) at the asking rows B (n, d), and the length of the error of both together.

        typical: root mean square of gᵀz to expect, over unit g in the span of the orthonormal columns of N.
        """
        n, k = len(B), N.shape[1]
        G = simplex(k, self._rng)
        found = self._grid(p, G @ N.T, B, typical)
        a, s = self._scores.length_beside(B)[:, None], found.sizes
        forms, errors, c = found.scores / a, found.errors / a, np.sqrt(1.0 - s * s)
        along, values, error = np.zeros(n), np.zeros((k, n)), np.zeros(n)
        for j in range(n):
            if k == 0:
                along[j], error[j] = forms[j, 0] / c[j, 0], errors[j, 0] / c[j, 0]
                continue
            common = float(np.mean(s[j] / c[j]))  # the carrier's own score, on the scale of the rest
            inverse = np.linalg.pinv(np.column_stack([common * c[j] / s[j], G]))
            solved = inverse @ (forms[j] / s[j])
            along[j], values[:, j] = common * solved[0], solved[1:]
            grows = np.hypot(
                common * float(np.linalg.norm(inverse[0])), float(np.linalg.norm(inverse[1:], 2))
            )
            error[j] = grows * float(np.linalg.norm(errors[j] / s[j]))
        return along, values, error

    def _grid(self, p: Array, G: Array, B: Array, typical: float) -> GridScores:
        """Scores of c·p + s·g for every asking row and g, their errors, and the s; saturated probes again
        with a smaller s."""
        m, scores = len(G), self._scores
        p_v, g_v = scores.product_with_v(p), G @ scores.v
        most = largest_part(p_v / scores.size)
        start = np.minimum(MODERATE_SCORE / (scores.length_beside(B) * max(typical, 1e-300)), most)
        far = m >= _WORTH_ASKING and float(np.linalg.norm(B, axis=1).max()) > _FAR * scores.longest
        b_v = scores.products_with_v(B) if far else B @ scores.v

        def look(j: Indices, i: Indices, s: Array) -> tuple[Array, Array]:
            c = np.sqrt(1.0 - s * s)

            def ask(x: slice) -> Array:
                P = c[x, None] * p + s[x, None] * G[i[x]]
                read = c[x] * p_v + s[x] * g_v[i[x]]
                t, error = scores.ask(P, B[j[x]], read, c[x] + SPREAD * s[x], b_v[j[x]])
                return np.column_stack([t, error])

            t, error = in_parts(ask, len(j), scores.batch_size()).T
            return t, error

        found = moderate_scores(look, np.repeat(start[:, None], m, axis=1), lambda s: s, most)
        if not np.isfinite(found.errors).all():
            raise Unresolved(
                f"answers off by {scores.tau:.2g} leave nothing of scores asked with rows of norm "
                f"{scores.longest:.3g} beside a query bias; rows of norm "
                f"{80.0 * scores.tau / scores.size:.2g} or more (input_bound), or a smaller tolerance, would "
                "help"
            )
        return found


def largest_part(along_v: float) -> float:
    """How much of a may be no carrier, so that what is beside the carrier takes no more than half of its
    product with v, when a part `along_v` of the carrier is along v.

    >>> round(largest_part(1.0), 3), round(largest_part(0.3), 3)
    (0.6, 0.155)
    """
    along_v = max(along_v, _SMALLEST)
    half = 0.5 * along_v / np.sqrt(max(1.0 - along_v * along_v, 1e-12))
    return float(min(_LARGEST_PART, half / np.hypot(1.0, half)))
