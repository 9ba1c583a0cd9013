"""F(z) = Σ_h c_h z/(z + e^{-T_h}) from a few z: scores T_h and weights c_h of a pair of tokens in H heads.

n copies of one token before m of the asking one give F at z = n/m. Weights add up to a known number. F is a
rational function with H poles on the negative axis, which gives a start; Levenberg-Marquardt does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids, expit
from unsoftmax.solvers.least_squares.many_small_fits import ManyFits, fit_many

__all__ = ["Sigmoids", "fit_free_weights", "fit_known_weights"]

_RANDOM_STARTS = 8  # at once, for each pair that no earlier start has solved
_ROUNDS = 4  # of random starts
_SIZES = (1.0, 2.0, 4.0)  # of the scores of random starts


@dataclass(frozen=True, eq=False)
class Sigmoids:
    """scores, weights: (P, H). errors: of the scores, (P, H), and of the weights. rms: of the residuals."""

    scores: Array
    weights: Array
    errors: Array
    weight_errors: Array
    rms: Array

    @property
    def heads(self) -> int:
        """Number of terms."""
        return int(self.scores.shape[1])


@dataclass(frozen=True, eq=False)
class _Free:
    """Unknown: all scores, and all weights but the last; that too where totals are not known."""

    log_ratios: Array
    found: Array
    totals: Array | None
    heads: int

    def linearised(self, unknowns: Array, which: Ids) -> tuple[Array, Array]:
        H = self.heads
        totals = None if self.totals is None else self.totals[which]
        scores, weights = unknowns[:, :H], _completed(unknowns[:, H:], totals)
        s = expit(scores[:, None, :] + self.log_ratios[:, None])
        residuals = np.einsum("pqh,ph->pq", s, weights) - self.found[which]
        by_weights = s if totals is None else s[..., :-1] - s[..., -1:]
        return residuals, np.concatenate([s * (1.0 - s) * weights[:, None, :], by_weights], axis=2)


@dataclass(frozen=True, eq=False)
class _Known:
    """Unknown: the scores."""

    log_ratios: Array
    found: Array
    weights: Array

    def linearised(self, unknowns: Array, which: Ids) -> tuple[Array, Array]:
        weights = self.weights[which]
        s = expit(unknowns[:, None, :] + self.log_ratios[:, None])
        residuals = np.einsum("pqh,ph->pq", s, weights) - self.found[which]
        return residuals, s * (1.0 - s) * weights[:, None, :]


def _completed(weights: Array, totals: Array | None) -> Array:
    return weights if totals is None else np.column_stack([weights, totals - weights.sum(axis=1)])


def fit_free_weights(
    ratios: Array, found: Array, totals: Array | None, heads: int, noise: float, rng: np.random.Generator
) -> Sigmoids:
    """Scores and weights of every pair, in no particular order of heads.

    ratios: z, (q,). found: F, (P, q). totals: what the weights add up to, (P,), if known. noise: of F.
    """
    problems = _Free(np.log(ratios), found, totals, heads)
    everyone = np.arange(len(found))
    best = fit_many(problems, _rational_starts(ratios, found, totals, heads), everyone, good=noise)

    def random(which: Ids) -> Array:
        scores = _random_scores(len(which), heads, rng)
        basis = expit(scores[:, None, :] + np.log(ratios)[:, None])
        weights = np.einsum("phq,pq->ph", np.linalg.pinv(basis, rcond=1e-6), found[which])
        return np.concatenate([scores, weights if totals is None else weights[:, :-1]], axis=1)

    best = _with_random_starts(problems, best, random, np.full(len(found), noise))
    deviations = best.deviations(noise)
    scores, weights = best.unknowns[:, :heads], _completed(best.unknowns[:, heads:], totals)
    weight_errors = deviations[:, heads:]
    if totals is not None:
        weight_errors = np.column_stack([weight_errors, np.sqrt(np.sum(weight_errors**2, axis=1))])
    return Sigmoids(scores, weights, deviations[:, :heads], weight_errors, best.rms)


def fit_known_weights(
    ratios: Array, found: Array, weights: Array, noise: Array, rng: np.random.Generator
) -> Sigmoids:
    """Scores of every pair where the weights (P, H) are known, and with them the order of heads.

    noise: (P,), of F and of the weights.
    """
    heads = weights.shape[1]
    problems = _Known(np.log(ratios), found, weights)
    best = fit_many(problems, np.zeros(weights.shape), np.arange(len(found)), good=noise)
    best = _with_random_starts(problems, best, lambda which: _random_scores(len(which), heads, rng), noise)
    return Sigmoids(best.unknowns, weights, best.deviations(noise), np.zeros_like(weights), best.rms)


def _with_random_starts(
    problems: _Free | _Known, best: ManyFits, starts: Callable[[Ids], Array], noise: Array
) -> ManyFits:
    for _ in range(_ROUNDS):
        open_ = np.flatnonzero(best.rms > noise)
        if not len(open_):
            break
        which = np.repeat(open_, _RANDOM_STARTS)
        tried = fit_many(problems, starts(which), which, good=noise[which])
        winner = tried.rms.reshape(len(open_), _RANDOM_STARTS).argmin(axis=1)
        chosen = np.arange(len(open_)) * _RANDOM_STARTS + winner
        best = best.better_of(
            ManyFits(tried.unknowns[chosen], tried.rms[chosen], tried.jacobians[chosen]), open_
        )
    return best


def _random_scores(count: int, heads: int, rng: np.random.Generator) -> Array:
    return np.asarray(rng.standard_normal((count, heads)) * rng.choice(_SIZES, (count, 1)))


def _rational_starts(ratios: Array, found: Array, totals: Array | None, heads: int) -> Array:
    """F·D = N with D = Π(z + b_h), N = z(total z^{H−1} + ...): linear in the coefficients of both."""
    H = heads
    powers = ratios[:, None] ** np.arange(H + 1)
    weight = 1.0 / (1.0 + ratios) ** H
    free = totals is None
    starts = np.empty((len(found), 2 * H if free else 2 * H - 1))
    for place, F in enumerate(found):
        total = 0.0 if totals is None else totals[place]
        system = np.column_stack([F[:, None] * powers[:, :H], -powers[:, 1 : H + int(free)]])
        right = (total - F) * powers[:, H]
        scale = np.maximum(np.abs(system).max(axis=0), 1e-300)
        solved = np.linalg.lstsq(system / scale * weight[:, None], right * weight, rcond=None)[0] / scale
        poles = -np.roots(np.r_[1.0, solved[:H][::-1]])
        if len(poles) < H or np.abs(poles.imag).max() > 1e-3 * np.abs(poles).max():
            size = np.abs(poles).mean() if len(poles) else 1.0
            poles = size * np.exp(np.linspace(-0.5, 0.5, H))
        scores = -np.log(np.clip(poles.real, 1e-8, 1e8))
        basis = expit(scores + np.log(ratios)[:, None])
        weights = np.linalg.lstsq(basis, F, rcond=1e-10)[0]
        starts[place] = np.r_[scores, weights if free else weights[:-1]]
    return np.where(np.isfinite(starts), starts, 0.0)
