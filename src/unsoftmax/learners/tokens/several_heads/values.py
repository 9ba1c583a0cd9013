"""Values of every token in every head, up to constants, from the pairs of one asker and repairs by others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.learners.tokens.several_heads.pairs import HeadPairs, Ordered
from unsoftmax.meters.tokens import Mask
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.tokens.sums_of_sigmoids import Sigmoids

__all__ = ["HeadValues", "learn_values", "repair_values"]

_UNSURE = 1e-6  # error bar of a score, or of a weight over the spread, from which another asker is asked
_REPAIRS = 8  # further askers


@dataclass(frozen=True, eq=False)
class HeadValues:
    """values: (V, H); heads but the first are zero at the first asker. uncertain: their error bars, (V,).

    asker: the first. scores, errors: (V, H), of its column. anchor: a token that tells the order of heads.
    """

    values: Array
    uncertain: Array
    asker: int
    scores: Array
    errors: Array
    anchor: int

    @property
    def known(self) -> Mask:
        """Tokens that have values."""
        return np.isfinite(self.uncertain)


def learn_values(pairs: HeadPairs, asker: int) -> HeadValues:
    """All tokens beside one asker, in the order of an anchor; those that stay unsure beside others."""
    V, H = len(pairs.totals), pairs.heads
    others = np.flatnonzero(np.arange(V) != asker)
    seen = pairs.free(others, np.full(len(others), asker))
    sharpness = _sharpness(seen, pairs.limit, pairs.spread)
    if not np.isfinite(sharpness).any():
        raise Unresolved(f"beside token {asker} no pair shows {H} heads apart; another seed may help")
    first = int(sharpness.argmin())
    anchor = int(others[first])
    found = pairs.ordered(others, asker, seen, anchor, _part(seen, first))
    found.sure[first] = True
    parts = (found.scores, found.weights, found.errors, found.weight_errors)
    for part, own in zip(parts, (seen.scores, seen.weights, seen.errors, seen.weight_errors), strict=True):
        part[first] = own[first]
    sure = found.sure & _sharp(found, pairs.spread)
    values, scores, errors = np.zeros((V, H)), np.zeros((V, H)), np.full((V, H), np.inf)
    values[asker, 0], errors[asker] = pairs.totals[asker], 0.0
    values[others] = values[asker] + found.weights
    scores[others] = found.scores
    errors[others[sure]] = found.errors[sure]
    uncertain = np.zeros(V)
    uncertain[others] = np.where(sure, found.weight_errors.max(axis=1), np.inf)
    learned = HeadValues(values, uncertain, asker, scores, errors, anchor)
    repair_values(pairs, learned, others[sure])
    return learned


def repair_values(pairs: HeadPairs, learned: HeadValues, sound: Ids) -> None:
    """Tokens that are not known yet, beside other askers out of `sound`.

    Where the anchor itself is not known any more, other tokens take its place.
    """
    values, uncertain = learned.values, learned.uncertain
    for _ in range(_REPAIRS):
        open_ = np.flatnonzero(np.isinf(uncertain))
        if not len(open_) or len(sound) < 2:
            return
        anchor = int(pairs.rng.choice(sound)) if learned.anchor in open_ else learned.anchor
        asking = int(pairs.rng.choice(sound[sound != anchor]))
        beside, read = pairs.labelled(np.array([anchor]), np.array([asking]), values, uncertain)
        if not read[0] or beside.errors.max() > _UNSURE:
            continue
        seen = pairs.free(open_, np.full(len(open_), asking))
        found = pairs.ordered(open_, asking, seen, anchor, beside)
        sure = found.sure & _sharp(found, pairs.spread)
        values[open_[sure]] = values[asking] + found.weights[sure]
        uncertain[open_[sure]] = uncertain[asking] + found.weight_errors[sure].max(axis=1)


def _sharp(found: Ordered, spread: float) -> Mask:
    """Weights that are known well enough; scores only matter for the column itself."""
    return np.asarray(found.weight_errors.max(axis=1) <= _UNSURE * spread)


def _sharpness(seen: Sigmoids, limit: float, spread: float) -> Array:
    """Smaller is better: error bars of a pair; infinite where it does not fit."""
    bars = np.maximum(seen.errors.max(axis=1), seen.weight_errors.max(axis=1) / spread)
    usable = (seen.rms <= limit) & (np.abs(seen.scores).max(axis=1) < 4.0)
    return np.where(usable, bars, np.inf)


def _part(seen: Sigmoids, place: int) -> Sigmoids:
    one = slice(place, place + 1)
    return Sigmoids(
        seen.scores[one], seen.weights[one], seen.errors[one], seen.weight_errors[one], seen.rms[one]
    )
