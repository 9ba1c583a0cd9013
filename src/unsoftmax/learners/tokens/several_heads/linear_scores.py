"""Columns or tokens of all heads at once: pairs whose scores are linear in what is unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids, expit
from unsoftmax.solvers.least_squares.many_small_fits import ManyFits, fit_many
from unsoftmax.solvers.tokens.sums_of_sigmoids import fit_known_weights

__all__ = ["LinearScores"]

_SOFT = 5.0  # error bar of a score that could not be read
_SHARPEST = 1e-12  # least error bar: a logit of a float64 sum of weights has no more digits


@dataclass(frozen=True, eq=False)
class LinearScores:
    """P problems of R pairs each: T_h = designs_h·x_h + offsets_h in every head, seen at q ratios of copies.

    designs: one (P, R, k_h) a head. offsets, weights: (P, R, H). found: (P, R, q). limits: (P,), rms of a
    problem that is solved. doubts: (P,), error bars of weights; where they are given, the weights of a
    problem may all move together, their sum over heads being known.
    """

    designs: list[Array]
    offsets: Array
    weights: Array
    ratios: Array
    found: Array
    limits: Array
    doubts: Array | None = None

    @property
    def sizes(self) -> list[int]:
        """Unknowns of every head."""
        return [design.shape[2] for design in self.designs]

    def linearised(self, unknowns: Array, which: Ids) -> tuple[Array, Array]:
        """Residuals (n, Rq) and Jacobians (n, Rq, Σk_h)."""
        residuals = -self.found[which]
        slopes, at, shapes = [], 0, []
        moved = self._moved(unknowns, which)
        for head, design in enumerate(part[which] for part in self.designs):
            k = design.shape[2]
            scores = np.einsum("prk,pk->pr", design, unknowns[:, at : at + k]) + self.offsets[which, :, head]
            weights = moved[:, :, head][:, :, None]
            s = expit(scores[:, :, None] + np.log(self.ratios))
            residuals = residuals + weights * s
            slopes.append((weights * s * (1.0 - s))[..., None] * design[:, :, None, :])
            shapes.append(s)
            at += k
        if self.doubts is not None:
            slopes.append(np.stack([s - shapes[-1] for s in shapes[:-1]], axis=3))
            at += len(shapes) - 1
        n, m = len(which), residuals.shape[1] * residuals.shape[2]
        return residuals.reshape(n, m), np.concatenate(slopes, axis=3).reshape(n, m, at)

    def _moved(self, unknowns: Array, which: Ids) -> Array:
        """Weights (n, R, H), moved by the last unknowns where they may."""
        if self.doubts is None:
            return self.weights[which]
        return np.asarray(self.weights[which] + self.shifts(unknowns)[:, None])

    def shifts(self, unknowns: Array) -> Array:
        """How the weights of each problem move, (n, H)."""
        free = unknowns[:, sum(self.sizes) :]
        return np.column_stack([free, -free.sum(axis=1)])

    def solve(self, rng: np.random.Generator) -> tuple[list[Array], ManyFits]:
        """x_h (P, k_h) of every head: single pairs give a start, all pairs together the rest."""
        P = len(self.found)
        fits = fit_many(self, self._starts(rng), np.arange(P), good=self.limits / 10.0)
        return np.split(fits.unknowns, np.cumsum(self.sizes), axis=1)[: len(self.sizes)], fits

    def _starts(self, rng: np.random.Generator) -> Array:
        P, R, H = self.weights.shape
        limits = np.repeat(self.limits if self.doubts is None else self.limits + self.doubts, R)
        seen = fit_known_weights(
            self.ratios, self.found.reshape(P * R, -1), self.weights.reshape(P * R, H), limits, rng
        )
        read = (seen.rms <= limits)[:, None]
        bars = np.where(read, np.clip(seen.errors, _SHARPEST, _SOFT), _SOFT).reshape(P, R, H)
        scores = seen.scores.reshape(P, R, H) - self.offsets
        parts = []
        for head, design in enumerate(self.designs):
            heavy = 1.0 / bars[:, :, head]
            inverse = np.linalg.pinv(design * heavy[:, :, None], rcond=1e-12)
            parts.append(np.einsum("pkr,pr->pk", inverse, scores[:, :, head] * heavy))
        if self.doubts is not None:
            parts.append(np.zeros((P, H - 1)))
        return np.concatenate(parts, axis=1)
