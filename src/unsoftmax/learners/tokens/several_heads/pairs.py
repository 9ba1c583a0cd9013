"""Scores of a pair of tokens in every head, from several patterns of copies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import CopyPatterns, Mask, TokenSequences
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.tokens.sums_of_sigmoids import Sigmoids, fit_free_weights, fit_known_weights

__all__ = ["HeadPairs", "Ordered"]

_FITS = 10.0  # units of noise: the residual of a pair that is a sum of H sigmoids
_CLEAR = 10.0  # a second order of heads has to fit worse by this factor
_EXPLAINED = 30.0  # a sequence of three may be off by so many error bars of its pairs


@dataclass(frozen=True, eq=False)
class Ordered:
    """Pairs whose heads are in the order of an anchor. sure: where one order fits, and no other."""

    scores: Array
    weights: Array
    errors: Array
    weight_errors: Array
    sure: Mask


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """Reads pairs [i×n, j×m]: y − u_j = Σ_h c_h z/(z + e^{-T_h}), z = n/m, c_h = u_hi − u_hj.

    totals: the answer to every token alone, Σ_h u_hi. noise: how far an answer may be off.
    """

    sequences: TokenSequences
    totals: Array
    heads: int
    noise: float
    rng: np.random.Generator

    @property
    def spread(self) -> float:
        """Difference between the largest and the smallest answer to one token."""
        return float(np.ptp(self.totals))

    @property
    def limit(self) -> float:
        """Residual up to which a fit is the right one."""
        return _FITS * self.noise

    def patterns(self, count: int) -> CopyPatterns:
        """`count` patterns of copies; `Unresolved` where sequences are too short for them."""
        found = CopyPatterns.even(count, self.sequences.longest)
        if len(found) < count:
            raise Unresolved(
                f"{self.heads} heads need {count} ratios of copies, and sequences of at most "
                f"{self.sequences.longest} tokens allow {len(found)}; longer sequences would help"
            )
        return found

    def free(self, tokens: Ids, asking: Ids) -> Sigmoids:
        """Scores and weights of pairs, heads in no order. 2H + 1 queries each."""
        patterns = self.patterns(2 * self.heads + 1)
        found = patterns.ask(self.sequences, tokens, asking) - self.totals[asking][:, None]
        apart = self.totals[tokens] - self.totals[asking]
        return fit_free_weights(patterns.ratios, found, apart, self.heads, self.limit, self.rng)

    @property
    def label_patterns(self) -> CopyPatterns:
        """Patterns that tell scores where values are known: 2H − 1, one more than scores for two heads."""
        return self.patterns(2 * self.heads - 1)

    def labelled(self, tokens: Ids, asking: Ids, values: Array, errors: Array) -> tuple[Sigmoids, Mask]:
        """Scores of pairs where values (V, H) are known to within errors (V,), and which are read.

        2H − 1 queries each.
        """
        patterns = self.label_patterns
        found = patterns.ask(self.sequences, tokens, asking) - self.totals[asking][:, None]
        limits = self.limit + errors[tokens] + errors[asking]
        weights = values[tokens] - values[asking]
        seen = fit_known_weights(patterns.ratios, found, weights, limits, self.rng)
        return seen, seen.rms <= limits

    def ordered(self, tokens: Ids, asking: int, seen: Sigmoids, anchor: int, known: Sigmoids) -> Ordered:
        """Heads in the order of the anchor: one sequence [anchor, i, j] a pair. known: the anchor's pair."""
        beside = np.column_stack([np.full(len(tokens), anchor), tokens, np.full(len(tokens), asking)])
        answers = self.sequences.ask(beside) - self.totals[asking]
        orders = [list(order) for order in permutations(range(self.heads))]
        off = np.stack([np.abs(_three(known, seen, order) - answers) for order in orders])
        ranked = np.sort(off, axis=0)
        best = np.array(orders)[off.argmin(axis=0)]
        bars = _moved(known, seen)
        sure = (ranked[0] <= _EXPLAINED * (self.noise + bars)) & (seen.rms <= self.limit)
        if len(orders) > 1:
            sure &= ranked[1] > _CLEAR * (ranked[0] + self.noise)

        def sorted_(part: Array) -> Array:
            return np.take_along_axis(part, best, axis=1)

        return Ordered(
            sorted_(seen.scores),
            sorted_(seen.weights),
            sorted_(seen.errors),
            sorted_(seen.weight_errors),
            sure,
        )


def _three(anchor: Sigmoids, pairs: Sigmoids, order: list[int]) -> Array:
    """Σ_h (e^{T_a} c_a + e^{T_i} c_i)/(e^{T_a} + e^{T_i} + 1)."""
    scores = pairs.scores[:, order]
    top = np.maximum(np.maximum(scores, anchor.scores), 0.0)
    first, second, own = np.exp(anchor.scores - top), np.exp(scores - top), np.exp(-top)
    mixed = (first * anchor.weights + second * pairs.weights[:, order]) / (first + second + own)
    return np.asarray(mixed.sum(axis=1))


def _moved(anchor: Sigmoids, pairs: Sigmoids) -> Array:
    """How far the error bars of two pairs can move the answer to three tokens."""
    parts = [
        np.abs(each.weights) * np.minimum(each.errors, 1.0) + np.minimum(each.weight_errors, 1.0)
        for each in (anchor, pairs)
    ]
    return np.asarray(parts[1].sum(axis=1) + parts[0].sum())
