"""Keys of tokens that the askers of the cross cannot read, from askers that can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import PairRequest
from unsoftmax.solvers.score_table.entries import Entries
from unsoftmax.solvers.score_table.fitter import Fitter, in_doubt, worst_of
from unsoftmax.solvers.score_table.table import Table
from unsoftmax.solvers.score_table.weighted_fits import WeightedFits

__all__ = ["KeyFitter"]

_ASKERS = 192  # among which additional entries are chosen
_JUDGES = 32  # of them, by which losses are estimated
_SHARPER = 0.1  # than columns: a key enters all columns, and that of its own token with every score
_PRIOR = 100.0  # keys of the strong tokens have variance one
_TOKENS_AT_ONCE = 500  # whose equations are solved together, within some megabytes


@dataclass(frozen=True, eq=False)
class KeyFitter(Fitter):
    """Fills in the keys of weak tokens. `tokens` of entries are askers here: a fit is a row of the table.

    askers: those of known columns among which further entries are chosen.
    """

    askers: Ids

    @classmethod
    def of(cls, table: Table) -> KeyFitter:
        """Askers are drawn."""
        known = np.flatnonzero(table.cross.strong & (table.losses <= table.limit))
        return cls(table, table.rng.choice(known, min(_ASKERS, len(known)), replace=False))

    @property
    def limit(self) -> float:
        return _SHARPER * self.table.limit

    def fit(self, tokens: Ids) -> None:
        """Fits the keys of tokens, each to its entries in the columns of the cross and to more."""
        table = self.table
        if not len(self.askers) or not table.rank:
            table.token_losses[tokens] = table.meter.spread
            return
        for start in range(0, len(tokens), _TOKENS_AT_ONCE):
            part = tokens[start : start + _TOKENS_AT_ONCE]
            columns = np.broadcast_to(table.cross.askers, (len(part), table.rank))
            scores, errors = table.cross.scores[part], table.cross.errors[part]
            self.improve(part, Entries.plain(columns, columns, scores, errors))

    def keep(self, owners: Ids, fits: WeightedFits, losses: Array) -> None:
        self.table.keys[owners], self.table.token_losses[owners] = fits.solutions, losses

    @staticmethod
    def partners(request: PairRequest) -> Ids:
        return request.asking

    def fits(self, entries: Entries) -> tuple[Entries, WeightedFits]:
        """(k_i − k_reference)·q_j = value gives k_i·q_j."""
        design = self.table.queries[entries.tokens]
        targets = entries.values + np.einsum("nmr,nmr->nm", design, self.table.keys[entries.references])
        return entries, WeightedFits.of(design, targets, entries.soft_errors, prior=_PRIOR)

    def losses(self, owners: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """The largest loss over askers when a token stands alone beside the asking one, and its direction."""
        table, askers = self.table, self.askers[:_JUDGES]
        queries, values = table.queries[askers], table.meter.values
        scores = fits.solutions @ queries.T - table.own_scores(askers, queries)
        weights = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
        moves = weights * (1.0 - weights) * np.abs(values[owners][:, None] - values[askers])
        directions = moves[:, :, None] * queries[None]
        return worst_of(fits.deviations(directions), directions)

    def best_requests(self, owners: Ids, entries: Entries, fits: WeightedFits, wanted: Array) -> PairRequest:
        table, askers, n, size = self.table, self.askers, len(owners), len(self.askers)
        queries = table.queries[askers]
        scores = fits.solutions @ queries.T - table.own_scores(askers, queries)
        white = fits.whitened(np.broadcast_to(queries, (n, *queries.shape)))
        doubts = np.linalg.norm(white, axis=2)
        third = table.meter.farther_extreme(askers)
        third = np.where(table.cross.strong[third], third, askers)
        third_scores = table.own_scores(third, queries) - table.own_scores(askers, queries)
        request = PairRequest(
            np.repeat(owners, size),
            np.tile(askers, n),
            scores.ravel(),
            np.tile(third, n),
            np.tile(third_scores, n),
            np.full(n * size, table.meter.noise / table.meter.spread),
        )
        bars = in_doubt(table.meter.prospect(request).reshape(n, size), doubts)
        target = fits.whitened(wanted[:, None])[:, 0]
        gain = np.einsum("npr,nr->np", white, target) ** 2 / (doubts**2 + bars**2)
        taken = entries.holds(askers) | (askers[None] == owners[:, None])
        gain = np.where(taken | ~np.isfinite(gain), -1.0, gain)
        return request.part(np.arange(n) * size + gain.argmax(axis=1))
