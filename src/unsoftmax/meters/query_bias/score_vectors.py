"""z = Wb + w0 for one asking row b: a long carrier that z does not hear, and a short part beside it that is
measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, complement, rms
from unsoftmax.meters.one_head.within_tolerance import simplex
from unsoftmax.meters.query_bias.score_intervals import SPREAD, OddScores
from unsoftmax.meters.query_bias.zero_score_direction import silent_between, silent_carrier
from unsoftmax.outcomes import Unresolved

__all__ = ["ScoreVector", "ScoreVectors", "complement", "largest_part", "rms"]

# root mean square of a probe's score: where an error of the answer moves the score least against its size
SCORE = 0.9
_LARGEST_SCORE = 2.2  # beyond, the share is too flat: ask again with a smaller part
_MIXED = 0.6  # largest part of a that is not carrier
_LEAST_LOUD = 0.25
_FAINT = 1e-3
_ROUNDS = 12
_PILOTS = 6
_MANY = 12  # probes from which some of them are pilots
_FAR = 0.1  # of the longest row: from there on, b·v is worth a query
_LADDER = 60


@dataclass(frozen=True)
class ScoreVector:
    """z at one asking row, the length of its error, and a loud direction that is silent there."""

    z: Array
    error: float
    carrier: Array


class ScoreVectors:
    """Measures z = Wb + w0 with probes a = A(c·p + s·g): p is silent (pᵀz near zero) and loud, sA·gᵀz is near
    one.

    The error of z is that of one answer against A|v|, however long z is, because the carrier makes the
    signal.

    >>> from unsoftmax import Ledger, SingleHead, WithinTolerance, as_oracle
    >>> from unsoftmax.meters import MeasuredReadout
    >>> head = SingleHead(np.eye(3), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, -1.0]))
    >>> rng = np.random.default_rng(0)
    >>> scores = OddScores(Ledger(WithinTolerance(as_oracle(head), 0.01)), MeasuredReadout(head.v, 0.0, 0.01,
    ...     1e4), rng)
    >>> found = ScoreVectors(scores, rng).alone(np.zeros(3))
    >>> bool(np.linalg.norm(found.z - head.w0) <= found.error < 1e-5)
    True
    """

    def __init__(self, scores: OddScores, rng: np.random.Generator) -> None:
        self._scores = scores
        self._rng = rng

    def alone(self, b: Array) -> ScoreVector | None:
        """z at one asking row, with a carrier that is looked for; None when no loud direction is silent
        there."""
        scores = self._scores
        p = silent_carrier(lambda P: scores.ask(P, b), scores.loudest, self._rng)
        if p is None:
            return None
        first = self._whole(p, b, self._typical(p, b))
        length = float(np.linalg.norm(first.z))
        if first.error > 0.5 * length:
            return first
        towards = first.z / length
        best = scores.loudest - towards * (towards @ scores.loudest)  # the loudest of all directions beside z
        loudness = float(np.linalg.norm(best))
        if loudness <= max(_LEAST_LOUD, float(p @ scores.loudest)):
            return first
        off = min(2.0 * first.error / length, 0.5)
        ends = [(best / loudness + sign * off * towards) / np.hypot(1.0, off) for sign in (1.0, -1.0)]
        carrier = silent_between(lambda P: scores.ask(P, b), *ends)
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
        s = most = largest_part(float(p @ self._scores.loudest))
        rest = complement(p)
        for _ in range(_LADDER):
            beside = self._rng.standard_normal((4, rest.shape[1])) @ rest.T
            t, error = self._scores.ask(
                np.sqrt(1.0 - s * s) * p + s * beside / np.linalg.norm(beside, axis=1)[:, None], b
            )
            largest = float(np.abs(t).max())
            if largest > 2.5 or not np.isfinite(error).all():
                s *= 0.3 if largest < 4.0 else 1.0 / 16
            elif largest < 0.35 and s < most:
                s = min(most, s * float(np.clip(1.2 / max(largest, 1e-9), 1.5, 16.0)))
            else:
                break
        return max(rms(t), 0.2) / (float(self._scores.length_beside(b)) * s)

    def measure(self, p: Array, N: Array, B: Array, typical: float) -> tuple[Array, Array, Array]:
        """pᵀz (n,) and Nᵀz (k, n) at the asking rows B (n, d), and the length of the error of both together.

        typical: root mean square of gᵀz to expect, over unit g in the span of the orthonormal columns of N.
        """
        n, k = len(B), N.shape[1]
        G = simplex(k, self._rng) if k else np.zeros((1, 0))
        t, t_errors, s = self._grid(p, G @ N.T, B, typical)
        a = self._scores.length_beside(B)[:, None]
        forms, errors, c = t / a, t_errors / a, np.sqrt(1.0 - s * s)
        along, values, error = np.zeros(n), np.zeros((k, n)), np.zeros(n)
        for j in range(n):
            if k == 0:
                along[j], error[j] = forms[j, 0] / c[j, 0], errors[j, 0] / c[j, 0]
                continue
            common = float(np.mean(s[j] / c[j]))  # what the carrier hears, on the scale of the rest
            inverse = np.linalg.pinv(np.column_stack([common * c[j] / s[j], G]))
            solved = inverse @ (forms[j] / s[j])
            along[j], values[:, j] = common * solved[0], solved[1:]
            grows = np.hypot(
                common * float(np.linalg.norm(inverse[0])), float(np.linalg.norm(inverse[1:], 2))
            )
            error[j] = grows * float(np.linalg.norm(errors[j] / s[j]))
        return along, values, error

    def _grid(self, p: Array, G: Array, B: Array, typical: float) -> tuple[Array, Array, Array]:
        """Scores of c·p + s·g for every asking row and g, their errors, and the s; saturated probes again
        with a smaller s."""
        n, m = len(B), len(G)
        scores = self._scores
        heard_p, heard_g = scores.heard_by(p), G @ scores.v
        most = largest_part(heard_p / scores.size)
        s = np.repeat(
            np.minimum(SCORE / (scores.length_beside(B) * max(typical, 1e-300)), most)[:, None], m, axis=1
        )
        asked = (
            scores.heard_each(B)
            if m >= 8 and float(np.linalg.norm(B, axis=1).max()) > _FAR * scores.longest
            else B @ scores.v
        )
        found, errors, parts = np.zeros((n, m)), np.full((n, m), np.inf), s.copy()
        pilots = min(_PILOTS, m // 4) if m >= _MANY else 0  # the first few say how large the others should be
        todo = np.ones((n, m), dtype=bool)
        todo[:, pilots:] = pilots == 0
        for round_ in range(_ROUNDS):
            j, i = np.nonzero(todo)
            if not len(j):
                break
            part = s[j, i]
            c = np.sqrt(1.0 - part * part)
            t, error = np.empty(len(j)), np.empty(len(j))
            for start in range(0, len(j), scores.batch_size()):
                x = slice(start, start + scores.batch_size())
                P = c[x, None] * p + part[x, None] * G[i[x]]
                t[x], error[x] = scores.ask(
                    P, B[j[x]], c[x] * heard_p + part[x] * heard_g[i[x]], c[x] + SPREAD * part[x], asked[j[x]]
                )
            better = error / part < errors[j, i] / parts[j, i]
            at = j[better], i[better]
            found[at], errors[at], parts[at] = t[better], error[better], part[better]
            saturated = (np.abs(t) > _LARGEST_SCORE) | ~np.isfinite(error)
            todo = np.zeros((n, m), dtype=bool)
            todo[j[saturated], i[saturated]] = True
            known = (np.abs(t) < 4.0) & np.isfinite(error)
            s[j, i] *= np.where(saturated, np.where(known, 1.0 / np.maximum(np.abs(t), 1.0), 0.12), 1.0)
            if round_ == 0 and pilots:
                loud = np.sqrt(
                    (SCORE**2 + (np.minimum(np.abs(t), 4.0) ** 2).reshape(n, pilots).sum(axis=1))
                    / (pilots + 1)
                )
                s[:, pilots:] = np.minimum(s[:, pilots:] * (SCORE / loud)[:, None], most)
                todo[:, pilots:] = True
        if not np.isfinite(errors).all():
            raise Unresolved(
                f"answers off by {scores.tau:.2g} leave nothing of scores asked with rows of norm "
                f"{scores.longest:.3g} beside a query bias; "
                f"rows of norm {80.0 * scores.tau / scores.size:.2g} or more (input_bound), or a smaller "
                "tolerance, would help"
            )
        return found, errors, parts


def largest_part(loudness: float) -> float:
    """How much of a may be no carrier, so that nothing beside the carrier takes more than half of what is
    heard of it.

    >>> round(largest_part(1.0), 3), round(largest_part(0.3), 3)
    (0.6, 0.155)
    """
    loudness = max(loudness, _FAINT)
    half = 0.5 * loudness / np.sqrt(max(1.0 - loudness * loudness, 1e-12))
    return float(min(_MIXED, half / np.hypot(1.0, half)))
