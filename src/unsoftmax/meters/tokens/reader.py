"""Plain readings of score pairs: each asked once, with a third token where two do not suffice."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens.pairs import Comparison, PairRequest, TokenPairMeter
from unsoftmax.oracles import Ids

__all__ = ["PairReader"]


class PairReader:
    """Reads T_ij for any pairs. Remembers those of the two tokens of extreme value, which are carriers."""

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
        open_pairs = np.isnan(errors)
        weak = open_pairs & self.meter.weak(tokens, asking)
        if weak.any():
            self._measure_carriers(np.unique(asking[weak]))
            self._recall(tokens, asking, scores, errors)
            open_pairs = np.isnan(errors)
        places = np.flatnonzero(open_pairs)
        for again in range(2):
            if len(places):
                found = self._ask(tokens[places], asking[places], scores[places])
                better = ~(found.errors >= errors[places]) | ((again == 0) & ~np.isfinite(found.errors))
                chosen = places[better]
                scores[chosen], errors[chosen] = found.values[better], found.errors[better]
                self._remember(tokens[chosen], asking[chosen], scores[chosen], errors[chosen])
            places = places[errors[places] > limit]
        return Comparison(scores, errors, asking, np.zeros(len(tokens), dtype=bool))

    def carrier(self, asking: Ids) -> tuple[Ids, Array, Array]:
        """One of the two extreme tokens for each asking one, its score and error bar (infinite: none)."""
        errors = np.where(np.isnan(self._errors[:, asking]), np.inf, self._errors[:, asking])
        errors[np.array(self.meter.extremes)[:, None] == asking] = np.inf  # no token carries for itself
        far = self.meter.farther_extreme(asking)
        preferred = (far == self.meter.extremes[1]).astype(np.int64)
        at = np.arange(len(asking))
        usable = np.isfinite(errors[preferred, at]) & (far != asking)
        row = np.where(usable, preferred, 1 - preferred)
        return np.array(self.meter.extremes)[row], self._scores[row, asking], errors[row, at]

    def _ask(self, tokens: Ids, asking: Ids, scores: Array) -> Comparison:
        """One query for each pair; differences to a carrier become scores against the asking token."""
        carriers, carrier_scores, carrier_errors = self.carrier(asking)
        usable = np.isfinite(carrier_errors) & self.meter.weak(tokens, asking)
        carriers = np.where(usable, carriers, asking)
        request = PairRequest(
            tokens,
            asking,
            scores,
            carriers,
            np.where(usable, carrier_scores, 0.0),
            np.where(usable, carrier_errors, 0.0),
        )
        found = self.meter.compare(request)
        relative = found.references != asking
        values = found.values + np.where(relative, request.carrier_scores, 0.0)
        errors = np.hypot(found.errors, np.where(relative, request.carrier_errors, 0.0))
        return Comparison(values, errors, asking, found.carried)

    def _measure_carriers(self, asking: Ids) -> None:
        """The farther extreme for asking tokens that have none; the other one where it cannot be read."""
        for other in (False, True):
            known = np.isfinite(self.carrier(asking)[2])
            wanted = asking[~known]
            if not len(wanted):
                return
            tokens = self.meter.farther_extreme(wanted)
            if other:
                tokens = np.where(
                    tokens == self.meter.extremes[0], self.meter.extremes[1], self.meter.extremes[0]
                )
            unknown = np.isnan(self._errors[[self._row[int(token)] for token in tokens], wanted])
            tokens, wanted = tokens[unknown], wanted[unknown]
            if len(wanted):
                found = self.meter.compare(PairRequest.plain(tokens, wanted))
                self._remember(tokens, wanted, found.values, found.errors)

    def _remember(self, tokens: Ids, asking: Ids, scores: Array, errors: Array) -> None:
        for token, row in self._row.items():
            at = tokens == token
            self._scores[row, asking[at]], self._errors[row, asking[at]] = scores[at], errors[at]

    def _recall(self, tokens: Ids, asking: Ids, scores: Array, errors: Array) -> None:
        for token, row in self._row.items():
            at = np.flatnonzero((tokens == token) & ~np.isnan(self._errors[row, asking]))
            scores[at], errors[at] = self._scores[row, asking[at]], self._errors[row, asking[at]]
