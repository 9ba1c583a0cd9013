"""A low-rank table of scores from single entries: adaptive cross approximation with a weighted fit.

Every column that is not in the cross is fitted to a few entries. Each fit says how far answers may be off by it;
columns and keys for which that is too much get more entries, chosen where they help most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens import Comparison, PairReader, PairRequest, TokenPairMeter
from unsoftmax.oracles import Ids
from unsoftmax.solvers.cross_columns import Cross, CrossOptions, find_cross
from unsoftmax.solvers.weighted_fits import WeightedFits

__all__ = ["CrossApproximation", "ScoreTable"]

_PAIRS_AT_ONCE = 60_000  # entries of one chunk of columns: about 70 MB at rank 64
_LENGTHS = (1, 1, 1, 1, 3, 3, 3, 3, 15, 15, 15, 15, 63, 63, 63, 63)  # tokens before the asking one, when losses are estimated
_POOL = 96  # tokens, or askers, among which an additional entry is chosen
_SOFT = 5.0  # error bar of a score of which only the side is known
_CONTRADICTION = 1e4  # error bars: what the errors of keys cannot explain
_DOUBT = 12.0  # prospects of a score that is uncertain by s are worse by e^s, at most by e^12


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """keys, queries: (V, r) with T_ij = (keys_i − keys_j)·queries_j. losses: for every asking token, how far answers are
    usually off at most by the errors of the table, in units of answers. token_losses: the same by the keys of a token.
    resolved: False when the largest rank allowed did not explain all entries."""

    keys: Array
    queries: Array
    losses: Array
    token_losses: Array
    resolved: bool


@dataclass(frozen=True)
class CrossApproximation:
    """tolerance: loss, in units of the answers' noise, up to which a column needs no further entry. extra: the most
    further entries of a column, as a multiple of the rank."""

    cross: CrossOptions = field(default_factory=CrossOptions)
    tolerance: float = 1e5
    extra: float = 3.0

    def solve(
        self, meter: TokenPairMeter, rng: np.random.Generator, announce: Callable[[int], None] | None = None
    ) -> ScoreTable:
        """The table. `announce` is told the number of entries still to come."""
        reader = PairReader(meter)
        cross = find_cross(reader, self.cross, rng)
        if announce is not None:
            announce(cross.rank * (meter.vocabulary - cross.rank))
        work = _Work(self, reader, cross, rng)
        everyone = np.arange(meter.vocabulary)
        inside = np.isin(everyone, cross.askers)
        work.fit_cross()
        work.fit_columns(everyone[cross.strong & ~inside])
        if not cross.strong.all():
            work.fit_keys(everyone[~cross.strong])
            work.fit_columns(everyone[~cross.strong & ~inside])
        return ScoreTable(work.keys, work.queries, work.losses, work.token_losses, cross.resolved)


class _Work:
    """Keys and queries while they are filled in."""

    def __init__(
        self, options: CrossApproximation, reader: PairReader, cross: Cross, rng: np.random.Generator
    ) -> None:
        self.options, self.reader, self.meter, self.cross = options, reader, reader.meter, cross
        size = self.meter.vocabulary
        self.keys = cross.keys.copy()
        self.queries = np.zeros((size, cross.rank))
        self.losses, self.token_losses = np.zeros(size), np.zeros(size)
        strong = np.flatnonzero(cross.strong)
        longest = self.meter.sequences.longest - 1
        self.samples = [rng.choice(strong, min(length, longest)) for length in _LENGTHS]
        self.pool = np.unique(np.concatenate([rng.choice(strong, min(_POOL, len(strong)), replace=False), cross.rows]))
        self.askers = np.empty(0, dtype=np.int64)
        self.rng = rng
        self.limit = options.tolerance * self.meter.noise
        self.prior = 1.0

    def fit_cross(self) -> None:
        """Queries of the askers in the cross, from their whole columns."""
        strong = self.cross.strong
        for place, asker in enumerate(self.cross.askers):
            weights = 1.0 / np.maximum(self.cross.errors[strong, place], self.meter.noise / self.meter.spread)
            design = (self.keys[strong] - self.keys[asker]) * weights[:, None]
            self.queries[asker] = np.linalg.lstsq(design, self.cross.scores[strong, place] * weights, rcond=None)[0]
        if self.cross.rank:
            self.prior = 100.0 * float(np.sqrt(np.mean(self.queries[self.cross.askers] ** 2)))

    def fit_columns(self, asking: Ids) -> None:
        """Queries of askers from their entries in the rows of the cross, and more where needed."""
        if not self.cross.rank:
            return
        was_read = np.array([set(self.cross.rows) <= self.cross.readings.get(int(j), {}).keys() for j in asking], dtype=bool)
        for j in asking[was_read]:
            tokens, found = zip(*((i, seen) for i, seen in self.cross.readings[int(j)].items() if i != j), strict=True)
            values, errors = np.array(found).T
            known = np.array(tokens)[None]
            self._fit_part(np.array([j]), _Entries.plain(known, np.full_like(known, j), values[None], errors[None]))
        asking = asking[~was_read]
        step = max(1, _PAIRS_AT_ONCE // self.cross.rank)
        for start in range(0, len(asking), step):
            part = asking[start : start + step]
            tokens = self._rows_for(part)
            found = self.reader.read(tokens.ravel(), np.repeat(part, tokens.shape[1]))
            references = np.repeat(part[:, None], tokens.shape[1], axis=1)
            values, errors = (field.reshape(tokens.shape) for field in (found.values, found.errors))
            self._fit_part(part, _Entries.plain(tokens, references, values, errors))

    def _fit_part(self, asking: Ids, entries: _Entries) -> None:
        fits = self._column_fits(entries)[1]
        self.queries[asking] = fits.solutions
        self.losses[asking] = self._column_losses(asking, fits)[0]
        poor = self.losses[asking] > self.limit
        self._improve_columns(asking[poor], entries.part(poor))

    def _rows_for(self, asking: Ids) -> Ids:
        """Rows of the cross for every column: all but the one that the asking token replaces best."""
        rows = self.cross.rows
        corners = np.column_stack([self.keys[rows], np.ones(len(rows))])
        shares = np.abs(np.linalg.solve(corners.T, np.column_stack([self.keys[asking], np.ones(len(asking))]).T)).T
        carriers = np.isin(rows, self.meter.extremes)
        shares = np.where(carriers, 0.2 * shares, shares)  # these two may be needed as third tokens anyway
        shares[asking[:, None] == rows] = np.inf
        kept = np.ones(shares.shape, dtype=bool)
        kept[np.arange(len(asking)), shares.argmax(axis=1)] = False
        return np.broadcast_to(rows, shares.shape)[kept].reshape(len(asking), -1)

    def _column_fits(self, entries: _Entries) -> tuple[_Entries, WeightedFits]:
        """Fits, and the entries as far as they agree with each other."""
        design = self.keys[entries.tokens] - self.keys[entries.references]
        fits = WeightedFits.of(design, entries.values, entries.soft_errors, prior=self.prior)
        if entries.tokens.shape[1] <= self.cross.rank:
            return entries, fits
        entries = entries.without_contradictions(entries.values - np.matmul(design, fits.solutions[:, :, None])[:, :, 0])
        return entries, WeightedFits.of(design, entries.values, entries.soft_errors, prior=self.prior)

    def _column_losses(self, asking: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """For every column the largest loss over sample sequences, and the direction of the query behind it."""
        own = np.einsum("nr,nr->n", self.keys[asking], fits.solutions)
        directions = np.empty((len(asking), len(self.samples), self.cross.rank))
        for place, tokens in enumerate(self.samples):
            scores = fits.solutions @ self.keys[tokens].T - own[:, None]
            moves = self.meter.influence(tokens, asking, scores)
            directions[:, place] = moves @ self.keys[tokens] - moves.sum(axis=1)[:, None] * self.keys[asking]
        losses = fits.deviations(directions)
        worst = losses.argmax(axis=1)
        at = np.arange(len(asking))
        return losses[at, worst], directions[at, worst]

    def _improve_columns(self, asking: Ids, entries: _Entries) -> None:
        """More entries, one a round, until every column is good enough or its share of them is spent."""
        rounds = int(np.ceil(self.options.extra * self.cross.rank)) + 4
        for _ in range(rounds):
            if not len(asking):
                return
            entries, fits = self._column_fits(entries)
            losses, directions = self._column_losses(asking, fits)
            self.queries[asking], self.losses[asking] = fits.solutions, losses
            open_columns = losses > self.limit
            asking, entries, fits = asking[open_columns], entries.part(open_columns), _chosen(fits, open_columns)
            if not len(asking):
                return
            request = self._best_tokens(asking, entries, fits, directions[open_columns])
            found = self.meter.compare(request)
            entries = entries.with_column(request.tokens, found)
        fits = self._column_fits(entries)[1]
        self.queries[asking], self.losses[asking] = fits.solutions, self._column_losses(asking, fits)[0]

    def _best_tokens(self, asking: Ids, entries: _Entries, fits: WeightedFits, wanted: Array) -> PairRequest:
        """For each column the token, and the third token, whose entry lowers its loss most."""
        n, pool = len(asking), self.pool
        carriers = np.concatenate([[-1], self.meter.carriers[self.cross.strong[self.meter.carriers]]])
        own = np.einsum("nr,nr->n", self.keys[asking], fits.solutions)
        scores = fits.solutions @ self.keys[pool].T - own[:, None]
        offsets = self.keys[pool][None] - self.keys[asking][:, None]
        doubts = fits.deviations(offsets)
        taken = (entries.tokens[:, None, :] == pool[None, :, None]).any(axis=2) | (pool[None] == asking[:, None])
        best, chosen = np.full(n, -1.0), PairRequest.plain(np.zeros(n, dtype=np.int64), asking)
        target = fits.whitened(wanted[:, None])[:, 0]
        for carrier in carriers:
            third = asking if carrier < 0 else np.full(n, carrier)
            third_scores = np.zeros(n) if carrier < 0 else fits.solutions @ self.keys[carrier] - own
            apart = (self.keys[third] - self.keys[asking])[:, None]
            third_errors = fits.deviations(apart)[:, 0]
            request = PairRequest(
                np.tile(pool, n), np.repeat(asking, len(pool)), scores.ravel(), np.repeat(third, len(pool)),
                np.repeat(third_scores, len(pool)), np.repeat(third_errors, len(pool)),
            )
            bars = self.meter.prospect(request).reshape(n, len(pool)) * np.exp(np.minimum(doubts, _DOUBT))
            heavy = (third_scores > 0.0)[:, None, None]
            design = fits.whitened(np.where(heavy, offsets - apart, offsets))
            gain = np.einsum("npr,nr->np", design, target) ** 2 / (np.sum(design**2, axis=2) + bars**2)
            gain = np.where(taken | (pool[None] == third[:, None]) | ~np.isfinite(gain), -1.0, gain)
            place = gain.argmax(axis=1)
            at = np.arange(n)
            better = gain[at, place] > best
            best = np.where(better, gain[at, place], best)
            chosen = _either(better, request.part(at * len(pool) + place), chosen)
        return chosen

    def fit_keys(self, tokens: Ids) -> None:
        """Keys of tokens that the askers of the cross cannot read, from askers that can."""
        known = np.flatnonzero(self.cross.strong & (self.losses <= self.limit))
        if not len(known) or not self.cross.rank:
            self.token_losses[tokens] = self.meter.spread
            return
        self.askers = self.rng.choice(known, min(2 * _POOL, len(known)), replace=False)
        places = np.broadcast_to(self.cross.askers, (len(tokens), self.cross.rank))
        entries = _Entries.plain(places, places, self.cross.scores[tokens], self.cross.errors[tokens])
        rounds = int(np.ceil(self.options.extra * self.cross.rank)) + 4
        for last in [False] * rounds + [True]:
            fits = self._key_fits(entries)
            losses, directions = self._key_losses(tokens, fits)
            self.keys[tokens], self.token_losses[tokens] = fits.solutions, losses
            open_tokens = losses > self.limit
            if last or not open_tokens.any():
                return
            tokens, entries, fits = tokens[open_tokens], entries.part(open_tokens), _chosen(fits, open_tokens)
            request = self._best_askers(tokens, entries, fits, directions[open_tokens])
            found = self.meter.compare(request)
            entries = entries.with_column(request.asking, found)

    def _key_fits(self, entries: _Entries) -> WeightedFits:
        """`tokens` of the entries are askers here: (k_i − k_ref)·q_j = value gives k_i·q_j."""
        design = self.queries[entries.tokens]
        targets = entries.values + np.einsum("nmr,nmr->nm", design, self.keys[entries.references])
        return WeightedFits.of(design, targets, entries.soft_errors, prior=100.0)

    def _key_losses(self, tokens: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """The largest loss over askers when each token stands beside the asking one alone, and its direction."""
        asking = self.askers[: 2 * len(_LENGTHS)]
        own = np.einsum("nr,nr->n", self.keys[asking], self.queries[asking])
        scores = fits.solutions @ self.queries[asking].T - own
        weights = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
        moves = weights * (1.0 - weights) * np.abs(self.meter.values[tokens][:, None] - self.meter.values[asking])
        directions = moves[:, :, None] * self.queries[asking][None]
        losses = fits.deviations(directions)
        worst, at = losses.argmax(axis=1), np.arange(len(tokens))
        return losses[at, worst], directions[at, worst]

    def _best_askers(self, tokens: Ids, entries: _Entries, fits: WeightedFits, wanted: Array) -> PairRequest:
        """For each token the asker whose entry lowers its loss most."""
        n, pool = len(tokens), self.askers
        own = np.einsum("nr,nr->n", self.keys[pool], self.queries[pool])
        scores = fits.solutions @ self.queries[pool].T - own
        design = np.broadcast_to(self.queries[pool], (n, *self.queries[pool].shape))
        white = fits.whitened(design)
        doubts = np.linalg.norm(white, axis=2)
        taken = (entries.tokens[:, None, :] == pool[None, :, None]).any(axis=2) | (pool[None] == tokens[:, None])
        third = self.meter.farther_extreme(np.repeat(pool[None], n, axis=0).ravel())
        third = np.where(self.cross.strong[third], third, np.tile(pool, n))
        third_scores = np.einsum("pr,pr->p", self.keys[third] - self.keys[np.tile(pool, n)], self.queries[np.tile(pool, n)])
        request = PairRequest(
            np.repeat(tokens, len(pool)), np.tile(pool, n), scores.ravel(), third, third_scores,
            np.full(n * len(pool), self.meter.noise / self.meter.spread),
        )
        bars = self.meter.prospect(request).reshape(n, len(pool)) * np.exp(np.minimum(doubts, _DOUBT))
        target = fits.whitened(wanted[:, None])[:, 0]
        gain = np.einsum("npr,nr->np", white, target) ** 2 / (doubts**2 + bars**2)
        gain = np.where(taken | ~np.isfinite(gain), -1.0, gain)
        return request.part(np.arange(n) * len(pool) + gain.argmax(axis=1))


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries of n columns, m each: value = (k_token − k_reference)·q, with its error bar."""

    tokens: Ids
    references: Ids
    values: Array
    errors: Array
    carried: Array

    @classmethod
    def plain(cls, tokens: Ids, references: Ids, values: Array, errors: Array) -> _Entries:
        """Entries that rest on no other score."""
        return cls(tokens, references, values, errors, np.zeros(tokens.shape, dtype=bool))

    @property
    def soft_errors(self) -> Array:
        return np.where(np.isfinite(self.errors) | (self.tokens < 0), self.errors, _SOFT)

    def part(self, chosen: Array) -> _Entries:
        return _Entries(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def with_column(self, tokens: Ids, found: Comparison) -> _Entries:
        """One more entry for each column."""
        return _Entries(
            np.column_stack([self.tokens, tokens]),
            np.column_stack([self.references, found.references]),
            np.column_stack([self.values, found.values]),
            np.column_stack([self.errors, found.errors]),
            np.column_stack([self.carried, found.carried]),
        )

    def without_contradictions(self, residuals: Array) -> _Entries:
        """Error bars as wide as the residuals show. In columns that contradict themselves, entries that rest on the
        predicted score of a third token are left out: that prediction was wrong."""
        excess = np.abs(residuals) / np.where(self.errors > 0.0, self.errors, np.inf)
        wrong = excess.max(axis=1, initial=0.0, where=np.isfinite(self.errors)) > _CONTRADICTION
        dropped = self.carried & wrong[:, None]
        widened = self.errors * np.where(wrong[:, None], 1.0, np.maximum(1.0, excess / 3.0))
        return replace(self, errors=np.where(dropped, np.inf, widened), values=np.where(dropped, 0.0, self.values), tokens=np.where(dropped, -1, self.tokens), references=np.where(dropped, -1, self.references))


def _chosen(fits: WeightedFits, which: Array) -> WeightedFits:
    return WeightedFits(fits.solutions[which], fits.roots[which])


def _either(first: Array, one: PairRequest, other: PairRequest) -> PairRequest:
    """Pairs of `one` where `first`, else of `other`."""
    return PairRequest(
        *(np.where(first, getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    )
