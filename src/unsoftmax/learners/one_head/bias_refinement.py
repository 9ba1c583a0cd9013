"""W and w0 of a rough head made sharp, and the error of what comes out measured afresh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.one_head.bias_scores import BiasedSolution
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.query_bias.refined import LONGEST, ZeroVectors
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers.balanced_rows import balanced_rows, solve_rows

__all__ = ["BiasedRefinement"]

_DRAWS = 36  # about seven of every length; nothing is asked
_LENGTHS = (1.0, 1.0, 0.5, 2.0, 0.25)  # of an asking row, tried in turn
_SHORTER = 4  # times a draw is made shorter: each time by what is too long
_SHORTENINGS = 200  # by 0.7 each: 31 decades
_NOTICEABLE = 0.05  # error of a carrier's score, against its length over b's
_CONTRACTS = 0.025  # of an answer's precision times its carrier's scores: a pass gains about forty times
_EXACT = 1e-3  # a gain below means that one pass with rows of the right length is enough
_CHECKS = 8  # fresh rows of d scores each: their mean square is known to a third or better
# 8 random rows that all miss an error by so much: less likely than 1e-5, even for one of rank one
_FACTOR = 6.0
_LEAST, _ENOUGH = (0.1, 0.5)  # a carrier that keeps less of v is no good; one that keeps more is good enough
_STEEP = 0.5  # part of b·v by which the answer moves with the score
_ROOM = 0.45  # of the longest row allowed: a row is the sum of two parts
_HOPELESS = 1e-4  # an error of scores beyond is not a matter of precision


@dataclass(frozen=True)
class BiasedRefinement:
    """Sharpens a rough head with a query bias through `vectors`, d + 1 asking rows a pass.

    An error of z moves the score of a carrier of length A by A times as much, so rows are short at first, and
    as long as W needs when little error is left.
    gain: the part of a correction that is left of the error after it. smallest: what an answer may be off by
    where it should vanish (a format's smallest number). least: smallest b·v to ask with. unit: relative
    precision of an answer, which is left of all that moves the score of the carrier.
    """

    asker: Asker
    vectors: ZeroVectors
    v: Array
    bound: float | None = None
    gain: float = 0.05
    smallest: float = 0.0
    least: float = 0.0
    unit: float = 0.0

    def refine(self, rough: BiasedSolution, passes: int, rng: np.random.Generator) -> tuple[Matrix, Array]:
        """W and w0 after at most so many passes; they end early when nothing moves any more. W as factors
        where its rank shows."""
        W, w0 = rough.scores.matrix.dense(), rough.w0
        errors = rough.scores.error / np.sqrt(len(w0)), rough.w0_error  # of W b for a usual unit b, and of w0
        last, longest, floor = np.inf, 0.0, 0.0
        with self.asker.phase("refine"):
            for _ in range(passes):
                B = self._rows(W, w0, rng, errors)
                length = float(np.linalg.norm(B[0]))
                Z, floor = B @ W.T + w0, self._floor(B)
                found = self.vectors.measure(B, Z, errors[0] * length + errors[1])
                moved = float(np.sqrt(np.mean(np.sum((found - Z) ** 2, axis=1))))
                if not np.isfinite(moved) or (moved > 0.5 * last and length < 1.5 * longest):
                    break
                W, w0 = solve_rows(B, found)
                last, longest = moved, max(longest, length)
                left = self.gain * moved + 4.0 * EPS * float(np.linalg.norm(Z[0]))
                errors = left / length, left
                if moved <= 8.0 * EPS * float(np.abs(Z).max()) or (
                    self.gain < _EXACT and length >= 0.2 * self._usual_length(W, w0)
                ):
                    break
        return _at_rank(W, rough.scores.rank, 64.0 * EPS + floor), w0

    def relative_error(self, W: Matrix, w0: Array, rng: np.random.Generator) -> float:
        """How wrong W and w0 can be, relative as in `SingleHead.distance`: z at fresh rows against what they
        say."""
        dense = W.dense()
        d = len(w0)
        size, bias = W.norm(), float(np.linalg.norm(w0))
        if size == 0.0:
            return np.inf
        with self.asker.phase(VERIFICATION):
            B = np.concatenate([self._rows(dense, w0, rng)[:1] for _ in range(_CHECKS)])
            B *= np.where(np.arange(_CHECKS) % 2, -1.0, 1.0)[:, None]
            Z = B @ dense.T + w0
            found = self.vectors.measure(B, Z, 64.0 * EPS * float(np.linalg.norm(Z[0])))
        unseen = (self._floor(B) + 4.0 * EPS) * float(np.linalg.norm(Z, axis=1).max())
        seen = float(np.sqrt(np.mean(np.sum((found - Z) ** 2, axis=1))))
        if not seen <= _HOPELESS * float(np.sqrt(np.mean(np.sum(Z**2, axis=1)))) + 10.0 * unseen:
            raise OutsideClass(
                Test("answers vanish, step or turn where the scores predict"),
                f"at fresh asking rows, scores are off by {seen / float(np.linalg.norm(Z[0])):.2g} of their "
                "size: another family, or a target that computes in low precision",
            )
        off = seen + unseen
        of_W = _FACTOR * off * np.sqrt(d) / float(np.linalg.norm(B, axis=1).min()) / size
        return float(max(of_W, _FACTOR * off / max(size, bias))) + 32 * EPS

    def _rows(
        self, W: Array, w0: Array, rng: np.random.Generator, errors: tuple[float, float] = (0.0, 0.0)
    ) -> Array:
        """Asking rows at which W b is about as long as the bias, drawn until every one leaves a carrier that
        sees v and fits into the bound."""
        d = len(w0)
        usual = self._usual_length(W, w0)
        for _ in range(_SHORTENINGS):
            if usual / d * (errors[0] * usual + errors[1]) <= _NOTICEABLE:
                break
            usual *= 0.7
        best, most = np.empty((0, d)), 0.0
        for draw in range(_DRAWS):
            B = balanced_rows(self.v, usual * _LENGTHS[draw % len(_LENGTHS)], rng)
            for _ in range(_SHORTER):
                part = self._part_of_v(B @ W.T + w0)
                longest = (
                    np.inf
                    if self.bound is None
                    else _ROOM * self.bound / (1.0 + LONGEST / (max(part, _LEAST) * np.sqrt(d)))
                )
                length = float(np.linalg.norm(B[0]))
                if length <= longest:
                    break
                B *= 0.9 * longest / length  # a shorter row has another z
            if part > most and length <= longest:
                best, most = B, part
            if most > _ENOUGH:
                break
        if most < _LEAST:
            raise Unresolved(
                "no asking row was found at which a direction that sees v has no score; longer rows "
                "(input_bound) or another seed may help"
            )
        return best

    def _usual_length(self, W: Array, w0: Array) -> float:
        """The length of an asking row at which W b is about as long as the bias and scores of rows as long as
        it are near one, or more."""
        d = len(w0)
        typical = max(float(np.linalg.norm(W)) / np.sqrt(d), 1e-300)
        visible = self.least * np.sqrt(d) / float(np.linalg.norm(self.v))
        bias = float(np.linalg.norm(w0))
        length = max(bias / typical, float(np.sqrt(np.sqrt(d) / typical)), visible)
        return float(
            min(length, _CONTRACTS * np.sqrt(d) / max(self.unit * (bias + typical * length), 1e-300))
        )

    def _part_of_v(self, Z: Array) -> float:
        """The least part of v that is left orthogonal to z, over the rows of Z."""
        along = Z @ self.v / (np.linalg.norm(Z, axis=1) * np.linalg.norm(self.v))
        return float(np.sqrt(np.maximum(1.0 - along**2, 0.0)).min())

    def _floor(self, B: Array) -> float:
        """Relative error of z that an answer of the smallest size stands for."""
        return self.smallest / (_STEEP * float(np.abs(B @ self.v).min()))


def _at_rank(W: Array, rank: int, relative: float) -> Matrix:
    """W as factors where all but `rank` singular values are noise."""
    left, values, right = np.linalg.svd(W)
    if 0 < rank < len(W) and values[rank] <= 100.0 * relative * values[0]:
        return Factors(np.asarray(left[:, :rank] * values[:rank]), np.asarray(right[:rank].T))
    return Dense(W)
