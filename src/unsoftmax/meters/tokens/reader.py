"""Plain readings of score pairs: each asked once, with a third token where two do not suffice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens.pairs import Comparison, PairRequest, TokenPairMeter
from unsoftmax.meters.tokens.sequences import Mask
from unsoftmax.oracles import Ids

__all__ = ["PairReader"]


class PairReader:
    """Reads T_ij for any pairs.

    Where the values of i and j are close, a third token carries: one whose score was read for the same j, or
    one of the two tokens of extreme value, whose scores are remembered.
    """

    def __init__(self, meter: TokenPairMeter) -> None:
        self.meter = meter
        size = meter.vocabulary
        self._row = {token: row for row, token in enumerate(meter.extremes)}
        self._scores = np.zeros((2, size))
        self._errors = np.full((2, size), np.nan)
        for token, row in self._row.items():
            self._errors[row, token] = 0.0

    def read(self, tokens: Ids, asking: Ids, *, limit: float = np.inf) -> Comparison:
        """T_ij of every pair. Pairs whose error bar is above `limit` are asked twice."""
        scores, errors = np.zeros(len(tokens)), np.full(len(tokens), np.nan)
        errors[tokens == asking] = 0.0
        self._recall(tokens, asking, scores, errors)
        weak = self.meter.weak(tokens, asking)
        places = np.flatnonzero(np.isnan(errors) & ~weak)
        self._measure(places, tokens, asking, scores, errors, _Carriers.none(asking[places]))
        places = places[errors[places] > limit]
        self._measure(places, tokens, asking, scores, errors, _Carriers.none(asking[places]))
        places = np.flatnonzero(np.isnan(errors) & weak)
        if len(places):
            carriers = self._carriers(tokens, asking, scores, errors, places)
            self._measure(places, tokens, asking, scores, errors, carriers)
            again = errors[places] > limit
            self._measure(places[again], tokens, asking, scores, errors, carriers.part(again))
        return Comparison(scores, errors, asking, np.zeros(len(tokens), dtype=bool))

    def _measure(
        self, places: Ids, tokens: Ids, asking: Ids, scores: Array, errors: Array, carriers: _Carriers
    ) -> None:
        """One query for each of the places; the better of two readings is kept."""
        if not len(places):
            return
        found = self._ask(tokens[places], asking[places], scores[places], carriers)
        better = np.isnan(errors[places]) | (found.errors < errors[places])
        chosen = places[better]
        scores[chosen], errors[chosen] = found.values[better], found.errors[better]
        self._remember(tokens[chosen], asking[chosen], scores[chosen], errors[chosen])

    def _carriers(self, tokens: Ids, asking: Ids, scores: Array, errors: Array, places: Ids) -> _Carriers:
        """For each place a token that was read for the same asking one; an extreme one where none was."""
        known = np.flatnonzero(np.isfinite(errors) & (tokens != asking))
        apart = np.abs(self.meter.values[tokens[known]] - self.meter.values[asking[known]])
        weight = np.exp(-np.abs(scores[known]))
        order = known[np.lexsort((weight * apart, asking[known]))]
        last = np.searchsorted(asking[order], asking[places], side="right") - 1
        found = order[np.maximum(last, 0)] if len(order) else np.zeros(len(places), dtype=np.int64)
        usable = (
            (last >= 0) & (asking[found] == asking[places])
            if len(order)
            else np.zeros(len(places), dtype=bool)
        )
        extreme = self._extremes(asking[places], ~usable)
        return _Carriers(
            np.where(usable, tokens[found], extreme.tokens),
            np.where(usable, scores[found], extreme.scores),
            np.where(usable, errors[found], extreme.errors),
        )

    def _extremes(self, asking: Ids, wanted: Mask) -> _Carriers:
        """One of the two extreme tokens for each asking one where it is wanted, read if need be."""
        self._measure_extremes(np.unique(asking[wanted]))
        errors = np.where(np.isnan(self._errors[:, asking]), np.inf, self._errors[:, asking])
        errors[np.array(self.meter.extremes)[:, None] == asking] = np.inf  # no token carries for itself
        row = errors.argmin(axis=0)
        at = np.arange(len(asking))
        return _Carriers(np.array(self.meter.extremes)[row], self._scores[row, asking], errors[row, at])

    def _ask(self, tokens: Ids, asking: Ids, scores: Array, carriers: _Carriers) -> Comparison:
        """One query for each pair; differences to a carrier become scores against the asking token."""
        usable = np.isfinite(carriers.errors)
        request = PairRequest(
            tokens,
            asking,
            scores,
            np.where(usable, carriers.tokens, asking),
            np.where(usable, carriers.scores, 0.0),
            np.where(usable, carriers.errors, 0.0),
        )
        found = self.meter.compare(request)
        relative = found.references != asking
        values = found.values + np.where(relative, request.carrier_scores, 0.0)
        errors = np.hypot(found.errors, np.where(relative, request.carrier_errors, 0.0))
        return Comparison(values, errors, asking, found.carried)

    def _measure_extremes(self, asking: Ids) -> None:
        """The farther extreme for each asking token; the other one where that cannot be read."""
        for other in (False, True):
            tokens = self.meter.farther_extreme(asking)
            if other:
                high, low = self.meter.extremes
                tokens = np.where(tokens == high, low, high)
            rows = np.array([self._row[int(token)] for token in tokens], dtype=np.int64)
            unread = np.isnan(self._errors[rows, asking])
            if unread.any():
                found = self.meter.compare(PairRequest.plain(tokens[unread], asking[unread]))
                self._remember(tokens[unread], asking[unread], found.values, found.errors)
            asking = asking[~np.isfinite(self._errors[rows, asking])]

    def _remember(self, tokens: Ids, asking: Ids, scores: Array, errors: Array) -> None:
        for token, row in self._row.items():
            at = tokens == token
            self._scores[row, asking[at]], self._errors[row, asking[at]] = scores[at], errors[at]

    def _recall(self, tokens: Ids, asking: Ids, scores: Array, errors: Array) -> None:
        for token, row in self._row.items():
            at = np.flatnonzero((tokens == token) & ~np.isnan(self._errors[row, asking]))
            scores[at], errors[at] = self._scores[row, asking[at]], self._errors[row, asking[at]]


@dataclass(frozen=True, eq=False)
class _Carriers:
    """A third token for each pair, with its score and error bar; infinite where there is none."""

    tokens: Ids
    scores: Array
    errors: Array

    @classmethod
    def none(cls, asking: Ids) -> _Carriers:
        return cls(asking, np.zeros(len(asking)), np.full(len(asking), np.inf))

    def part(self, chosen: Mask) -> _Carriers:
        return _Carriers(self.tokens[chosen], self.scores[chosen], self.errors[chosen])
