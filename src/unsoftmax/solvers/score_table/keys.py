"""Keys of tokens that the askers of the cross cannot read, from askers that can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import PairRequest
from unsoftmax.solvers.score_table.columns import in_doubt
from unsoftmax.solvers.score_table.entries import Entries
from unsoftmax.solvers.score_table.table import Table
from unsoftmax.solvers.score_table.weighted_fits import WeightedFits

__all__ = ["KeyFitter"]

_ASKERS = 192  # among which additional entries are chosen
_JUDGES = 32  # of them, by which losses are estimated
_PRIOR = 100.0  # keys of the strong tokens have variance one
_TOKENS_AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class KeyFitter:
    """Fills in the keys of weak tokens. `tokens` of entries are askers here: a fit is a row of the table."""

    table: Table

    def fit(self, tokens: Ids) -> None:
        """Fits the keys of tokens, each to its entries in the columns of the cross and to more."""
        table = self.table
        known = np.flatnonzero(table.cross.strong & (table.losses <= table.limit))
        if not len(known) or not table.rank:
            table.token_losses[tokens] = table.meter.spread
            return
        askers = table.rng.choice(known, min(_ASKERS, len(known)), replace=False)
        for start in range(0, len(tokens), _TOKENS_AT_ONCE):
            self._fit(tokens[start : start + _TOKENS_AT_ONCE], askers)

    def _fit(self, tokens: Ids, askers: Ids) -> None:
        table = self.table
        columns = np.broadcast_to(table.cross.askers, (len(tokens), table.rank))
        entries = Entries.plain(columns, columns, table.cross.scores[tokens], table.cross.errors[tokens])
        for last in [False] * table.extra + [True]:
            fits = self._fits(entries)
            losses, directions = self._losses(tokens, askers[:_JUDGES], fits)
            table.keys[tokens], table.token_losses[tokens] = fits.solutions, losses
            poor = losses > table.limit
            if last or not poor.any():
                return
            tokens, entries, fits, directions = (
                tokens[poor],
                entries.part(poor),
                fits.part(poor),
                directions[poor],
            )
            request = self._best_requests(tokens, askers, entries, fits, directions)
            entries = entries.with_one_more(request.asking, table.meter.compare(request))

    def _fits(self, entries: Entries) -> WeightedFits:
        """(k_i − k_reference)·q_j = value gives k_i·q_j."""
        design = self.table.queries[entries.tokens]
        targets = entries.values + np.einsum("nmr,nmr->nm", design, self.table.keys[entries.references])
        return WeightedFits.of(design, targets, entries.soft_errors, prior=_PRIOR)

    def _losses(self, tokens: Ids, askers: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """The largest loss over askers when a token stands alone beside the asking one, and its direction."""
        table = self.table
        queries, values = table.queries[askers], table.meter.values
        scores = fits.solutions @ queries.T - table.own_scores(askers, queries)
        weights = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
        moves = weights * (1.0 - weights) * np.abs(values[tokens][:, None] - values[askers])
        directions = moves[:, :, None] * queries[None]
        losses = fits.deviations(directions)
        worst, at = losses.argmax(axis=1), np.arange(len(tokens))
        return losses[at, worst], directions[at, worst]

    def _best_requests(
        self, tokens: Ids, askers: Ids, entries: Entries, fits: WeightedFits, wanted: Array
    ) -> PairRequest:
        """For each token the asker whose entry lowers the variance along `wanted` most."""
        table, n, size = self.table, len(tokens), len(askers)
        queries = table.queries[askers]
        scores = fits.solutions @ queries.T - table.own_scores(askers, queries)
        white = fits.whitened(np.broadcast_to(queries, (n, *queries.shape)))
        doubts = np.linalg.norm(white, axis=2)
        third = table.meter.farther_extreme(askers)
        third = np.where(table.cross.strong[third], third, askers)
        third_scores = table.own_scores(third, queries) - table.own_scores(askers, queries)
        request = PairRequest(
            np.repeat(tokens, size),
            np.tile(askers, n),
            scores.ravel(),
            np.tile(third, n),
            np.tile(third_scores, n),
            np.full(n * size, table.meter.noise / table.meter.spread),
        )
        bars = in_doubt(table.meter.prospect(request).reshape(n, size), doubts)
        target = fits.whitened(wanted[:, None])[:, 0]
        gain = np.einsum("npr,nr->np", white, target) ** 2 / (doubts**2 + bars**2)
        taken = entries.holds(askers) | (askers[None] == tokens[:, None])
        gain = np.where(taken | ~np.isfinite(gain), -1.0, gain)
        return request.part(np.arange(n) * size + gain.argmax(axis=1))
