"""Columns of the table: each fitted to its entries in the rows of the cross, and to more where needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from unsoftmax.arrays import Array, Ids, expit
from unsoftmax.meters.tokens import PairRequest
from unsoftmax.solvers.score_table.entries import Entries
from unsoftmax.solvers.score_table.fitter import Fitter, Group, in_doubt, worst_of
from unsoftmax.solvers.score_table.weighted_fits import WeightedFits

__all__ = ["ColumnFitter"]

_PAIRS_AT_ONCE = 60_000  # entries of one chunk of columns: about 70 MB at rank 64
_CHECK_LENGTHS = (15, 3)  # tokens before the asking one
_SUSPICIOUS = 10.0  # losses: a column that is off by more is fitted anew


@dataclass(frozen=True, eq=False)
class ColumnFitter(Fitter):
    """Fills in the queries of asking tokens. groups: all columns that were fitted, with their entries."""

    groups: list[Group] = field(default_factory=list)

    def fit(self, asking: Ids) -> None:
        """Fits columns, first those that were read while the cross was found."""
        table = self.table
        if not table.rank:
            return
        rows = {int(row) for row in table.cross.rows}
        known = np.array(
            [rows <= table.cross.readings.get(int(j), {}).keys() | {int(j)} for j in asking], dtype=bool
        )
        for j in asking[known]:
            known_entries = {i: seen for i, seen in table.cross.readings[int(j)].items() if i != j}
            tokens = np.array([list(known_entries)])
            values, errors = np.array(list(known_entries.values())).T
            own = Entries.plain(tokens, np.full_like(tokens, j), values[None], errors[None])
            self.groups.extend(self.improve(np.array([j]), own))
        asking = asking[~known]
        step = max(1, _PAIRS_AT_ONCE // table.rank)
        for start in range(0, len(asking), step):
            part = asking[start : start + step]
            tokens = self._rows_for(part)
            found = table.reader.read(tokens.ravel(), np.repeat(part, tokens.shape[1]))
            references = np.repeat(part[:, None], tokens.shape[1], axis=1)
            shape = tokens.shape
            read = found.values.reshape(shape), found.errors.reshape(shape)
            self.groups.extend(self.improve(part, Entries.plain(tokens, references, *read)))

    def compare_rivals(self) -> None:
        """More entries for columns that do not tell well how tokens compete with the asking one.

        A token that outweighs nearly all others shows in few sequences, which samples miss. To be called when
        the keys of all tokens are known.
        """
        self.table.count_rivals()
        for owners, entries in self.groups:
            self.improve(owners, entries, self._losses_of_rivals)

    def check(self, asking: Ids) -> None:
        """Asks every token in a few sequences more. Columns that are off are fitted anew to other entries.

        Where scores are strong, an entry that rests on a wrong prediction can hide in a column that has no
        entry to spare. What is still off afterwards is the loss of its column.
        """
        longest = self.table.meter.sequences.longest - 1
        for length in _CHECK_LENGTHS:
            self._check(asking, partial(self._drawn, length=min(length, longest)))
        if self.table.rivals_count:
            self._check(asking, self._rival)

    def _drawn(self, asking: Ids, length: int) -> Ids:
        return np.asarray(self.table.rng.choice(self.table.pool, (len(asking), length)))

    def _rival(self, asking: Ids) -> Ids:
        """One token for each asking one, of those that compete with it."""
        found = self.table.rivals(asking, self.table.queries[asking])
        chosen = self.table.rng.integers(0, found.shape[1], len(asking))
        return found[np.arange(len(asking)), chosen][:, None]

    def _check(self, asking: Ids, before: Callable[[Ids], Ids]) -> None:
        """before: the tokens before each asking one, (n, L)."""
        table = self.table
        for again in (True, False):
            tokens = before(asking)
            queries = table.queries[asking]
            own = table.own_scores(asking, queries)
            scores = np.einsum("nlr,nr->nl", table.keys[tokens], queries) - own[:, None]
            off = table.meter.deviations(tokens, asking, scores)
            asking, off = asking[off > _SUSPICIOUS * table.limit], off[off > _SUSPICIOUS * table.limit]
            if not len(asking):
                return
            if again:
                self._fit_anew(asking)
            else:
                table.losses[asking] = np.maximum(table.losses[asking], off)

    def _fit_anew(self, asking: Ids) -> None:
        table = self.table
        size = min(len(table.pool), 2 * table.rank + 4)
        tokens = np.stack([table.rng.choice(table.pool, size, replace=False) for _ in asking])
        found = table.reader.read(tokens.ravel(), np.repeat(asking, size))
        references = np.repeat(asking[:, None], size, axis=1)
        values, errors = found.values.reshape(tokens.shape), found.errors.reshape(tokens.shape)
        for group in self.improve(asking, Entries.plain(tokens, references, values, errors)):
            self.improve(*group, self._losses_of_rivals)

    def _rows_for(self, asking: Ids) -> Ids:
        """Rows of the cross for every column: all but the one that the asking token replaces best."""
        table, rows = self.table, self.table.cross.rows
        corners = np.column_stack([table.keys[rows], np.ones(len(rows))])
        places = np.column_stack([table.keys[asking], np.ones(len(asking))])
        shares = np.abs(np.linalg.solve(corners.T, places.T)).T
        shares[asking[:, None] == rows] = np.inf
        kept = np.ones(shares.shape, dtype=bool)
        kept[np.arange(len(asking)), shares.argmax(axis=1)] = False
        return np.broadcast_to(rows, shares.shape)[kept].reshape(len(asking), -1)

    def keep(self, owners: Ids, fits: WeightedFits, losses: Array) -> None:
        table = self.table
        table.queries[owners], table.losses[owners] = fits.solutions, losses
        # keys have the identity as their covariance
        everywhere = np.broadcast_to(np.eye(table.rank), (len(owners), table.rank, table.rank))
        table.query_errors[owners] = np.linalg.norm(fits.deviations(everywhere), axis=1)

    @staticmethod
    def partners(request: PairRequest) -> Ids:
        return request.tokens

    def fits(self, entries: Entries) -> tuple[Entries, WeightedFits]:
        table, prior = self.table, self.table.prior
        design = table.keys[entries.tokens] - table.keys[entries.references]
        fits = WeightedFits.of(design, entries.values, entries.soft_errors, prior=prior)
        bars = table.key_bars(entries.tokens, fits.solutions)
        if entries.tokens.shape[1] > table.rank:
            residuals = entries.values - np.matmul(design, fits.solutions[:, :, None])[:, :, 0]
            entries = entries.without_contradictions(residuals, bars)
        errors = np.hypot(entries.soft_errors, bars)
        return entries, WeightedFits.of(design, entries.values, errors, prior=prior)

    def losses(self, owners: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """For every column the largest loss over sample sequences, and the direction behind it."""
        table = self.table
        own = table.own_scores(owners, fits.solutions)
        directions = np.empty((len(owners), len(table.samples), table.rank))
        for place, tokens in enumerate(table.samples):
            keys = table.keys[tokens]
            moves = table.meter.influence(tokens, owners, fits.solutions @ keys.T - own[:, None])
            directions[:, place] = moves @ keys - moves.sum(axis=1)[:, None] * table.keys[owners]
        return worst_of(fits.deviations(directions), directions)

    def _losses_of_rivals(self, owners: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """The largest loss of `losses` and of the answers to [i, j], for every rival i of j."""
        table = self.table
        tokens = table.rivals(owners, fits.solutions)
        offsets = table.keys[tokens] - table.keys[owners][:, None]
        weights = expit(np.einsum("nkr,nr->nk", offsets, fits.solutions))
        apart = table.meter.values[tokens] - table.meter.values[owners][:, None]
        directions = (weights * (1.0 - weights) * apart)[:, :, None] * offsets
        losses, worst = self.losses(owners, fits)
        pairs, along = worst_of(fits.deviations(directions), directions)
        more = pairs > losses
        return np.where(more, pairs, losses), np.where(more[:, None], along, worst)

    def best_requests(self, owners: Ids, entries: Entries, fits: WeightedFits, wanted: Array) -> PairRequest:
        """For each column the tokens whose entry lowers the variance along `wanted` most."""
        table, n = self.table, len(owners)
        shared = np.broadcast_to(table.pool, (n, len(table.pool)))
        pool = np.column_stack([shared, table.rivals(owners, fits.solutions)])
        own = table.own_scores(owners, fits.solutions)
        keys = table.keys[pool]
        scores = np.einsum("npr,nr->np", keys, fits.solutions) - own[:, None]
        offsets = keys - table.keys[owners][:, None]
        doubts = fits.deviations(offsets)
        taken = entries.holds(pool) | (pool == owners[:, None])
        target = fits.whitened(wanted[:, None])[:, 0]
        key_bars = table.key_bars(pool, fits.solutions)
        thirds = table.meter.carriers[table.cross.strong[table.meter.carriers]]
        best, chosen, at = np.full(n, -1.0), PairRequest.plain(owners, owners), np.arange(n)
        size = pool.shape[1]
        for third in [owners, *(np.full(n, token) for token in thirds)]:
            apart = (table.keys[third] - table.keys[owners])[:, None]
            third_scores = np.where(third == owners, 0.0, table.own_scores(third, fits.solutions) - own)
            request = PairRequest(
                pool.ravel(),
                np.repeat(owners, size),
                scores.ravel(),
                np.repeat(third, size),
                np.repeat(third_scores, size),
                np.repeat(fits.deviations(apart)[:, 0], size),
            )
            bars = in_doubt(table.meter.prospect(request).reshape(n, size), doubts)
            bars = np.hypot(bars, key_bars)
            heavy = (third_scores > 0.0)[:, None, None]  # then the entry is a difference to the third token
            design = fits.whitened(np.where(heavy, offsets - apart, offsets))
            gain = np.einsum("npr,nr->np", design, target) ** 2 / (np.sum(design**2, axis=2) + bars**2)
            gain = np.where(taken | (pool == third[:, None]) | ~np.isfinite(gain), -1.0, gain)
            place = gain.argmax(axis=1)
            better = gain[at, place] > best
            best = np.where(better, gain[at, place], best)
            chosen = request.part(at * size + place).where(better, chosen)
        return chosen
