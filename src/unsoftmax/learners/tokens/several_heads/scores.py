"""Keys and queries of every head: full columns of a few askers, a few pairs of every other column."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import Array, Ids, expit
from unsoftmax.learners.tokens.several_heads.linear_scores import LinearScores
from unsoftmax.learners.tokens.several_heads.pairs import HeadPairs
from unsoftmax.learners.tokens.several_heads.values import HeadValues
from unsoftmax.meters.tokens import Mask
from unsoftmax.outcomes import Unresolved

__all__ = ["HeadScores"]

_SPARE = 2  # pairs of a column beyond its rank: one for the constant, one to contradict
_POOL = 24  # tokens among which those of a column are chosen, at least
_DRAWS = 24  # choices of tokens that are compared
_COMPARED = 256  # tokens by which askers are put in order
_CONVINCED = 3  # askers in a row whose columns lie in the span of those before
_NEW_DIRECTION = 30.0  # error bars: residuals of a column above them are a direction of its own
_MOST_COLUMNS = 64  # a cap on the sum of the ranks of all heads
_SOFT = 5.0  # error bar of a score that could not be read
_STRONG = 1e-6  # error bars of keys, above which a token is fitted anew; the joint fit does the rest
_MARGIN = 10.0  # of error bars of keys and values, in the residual of a column that is explained
_CHECKED = 1e-7  # of the spread: a prediction of a joint fit is closer
_REFITTED = 1e-8  # and of tokens that were fitted to others after it
_RETRIES = 3  # each with other pairs
_REFINED = 1e-9  # error bars after a joint fit to the noise of float64


@dataclass(eq=False)
class HeadScores:
    """T_ij = (keys_i − keys_j)·queries_j in every head, filled in column by column.

    fitted: askers with queries. checked: tokens that one pair more confirmed. uncertain: error bars of keys,
    (V,). columns: number of whole columns read.
    """

    pairs: HeadPairs
    values: HeadValues
    keys: list[Array] = field(init=False)
    queries: list[Array] = field(init=False)
    fitted: Mask = field(init=False)
    uncertain: Array = field(init=False)
    checked: Mask = field(init=False)
    columns: int = 0

    def __post_init__(self) -> None:
        V, H = self.values.values.shape
        self.keys, self.queries = [np.zeros((V, 0))] * H, [np.zeros((V, 0))] * H
        self.checked = np.zeros(V, dtype=bool)
        self.fitted, self.uncertain = np.zeros(V, dtype=bool), np.where(self.values.known, 0.0, np.inf)

    def learn(self) -> None:
        """Askers one by one until their columns lie in the span of those before; then all others."""
        values = self.values
        if not values.known.any():
            raise Unresolved(
                f"no token's values are known in {self.pairs.heads} heads; another seed may help"
            )
        scores, errors = values.scores.copy(), values.errors.copy()
        self._read(scores, errors, np.flatnonzero(values.known & np.isinf(errors).any(axis=1)), values.asker)
        self._extend(values.asker, scores, errors)
        sharpest = np.argsort(self.uncertain + values.uncertain / self.pairs.spread, kind="stable")
        sharpest = sharpest[: max(len(sharpest) // 2, 1)]
        order = [int(j) for j in self._by_contrast(sharpest) if j != values.asker]
        convinced = 0
        while convinced < _CONVINCED and order:
            asking = order.pop(0)
            if self._explained(asking):
                convinced += 1
            elif len(order) and self._explained(order[0]):
                # a direction that is missing would be missed by others too: values of this one are wrong
                convinced += 1
                self.values.uncertain[asking] = self.uncertain[asking] = np.inf
                order.pop(0)
            else:
                convinced = 0
                self.add_column(asking)
        self.fit_columns(np.flatnonzero((self.uncertain < _STRONG) & ~self.fitted))

    def _by_contrast(self, tokens: Ids) -> Ids:
        """Askers beside which tokens usually show in all heads come first: values far from theirs in each."""
        known = np.flatnonzero(self.values.known)
        if not len(known):
            raise Unresolved(f"no token's values fit in {self.pairs.heads} heads; another seed may help")
        values = self.values.values[self.pairs.rng.permutation(known)[:_COMPARED]]
        apart = np.abs(self.values.values[tokens][:, None] - values) / values.std(axis=0)
        return tokens[np.argsort(-np.median(apart.min(axis=2), axis=1), kind="stable")]

    def _explained(self, asking: int) -> bool:
        """Whether the directions that are known explain the column of an asker, in one of two trials."""
        return any(bool(self.fit_columns(np.array([asking]))[0]) for _ in range(2))

    @property
    def strong(self) -> Mask:
        """Tokens whose keys are known well."""
        return np.asarray(self.uncertain < _STRONG)

    @property
    def complete_tokens(self) -> Mask:
        """Tokens with keys and queries."""
        return np.asarray(self.strong & self.fitted)

    @property
    def complete(self) -> bool:
        """Whether all tokens have keys and queries."""
        return bool(self.complete_tokens.all())

    def sharpen(self, keys: list[Array], queries: list[Array], values: Array) -> None:
        """Takes over what a joint fit of all strong tokens found."""
        covered = self.strong
        self.keys, self.queries = keys, queries
        self.values.values[covered] = values[covered]
        self.values.uncertain[covered] = _REFINED * self.pairs.spread
        self.uncertain[covered] = _REFINED

    def check_tokens(self) -> None:
        """One pair more for every token: whole columns, as many as the rank, leave nothing to contradict.

        Tokens that are answered otherwise than predicted are to be fitted anew.
        """
        tokens = np.flatnonzero(self.strong & ~self.checked)
        if not len(tokens):
            return
        asking = self.pairs.rng.choice(np.flatnonzero(self.complete_tokens), len(tokens))
        found = self.pairs.sequences.ask(np.stack([tokens, asking], axis=1)) - self.pairs.totals[asking]
        values, predicted = self.values.values, np.zeros(len(tokens))
        for head, (keys, queries) in enumerate(zip(self.keys, self.queries, strict=True)):
            scores = np.einsum("nk,nk->n", keys[tokens] - keys[asking], queries[asking])
            predicted += expit(scores) * (values[tokens, head] - values[asking, head])
        self.checked[tokens] = True
        self.uncertain[tokens[np.abs(found - predicted) > _CHECKED * self.pairs.spread]] = np.inf

    def fit_rest(self) -> Ids:
        """Tokens and columns that were left out before, now that others are known well; what is left then."""
        for _ in range(_RETRIES):
            self.fit_keys(np.flatnonzero(self.values.known & ~self.strong))
            self.fit_columns(np.flatnonzero(self.strong & ~self.fitted))
        return np.flatnonzero(~self.strong | ~self.fitted)

    def add_column(self, asking: int) -> None:
        """The scores of all tokens beside one asker, and the directions that are new in them."""
        V, H = self.values.values.shape
        if self.columns >= min(_MOST_COLUMNS, V - 1):
            raise Unresolved(f"{self.columns} whole columns of scores do not explain the others")
        column, bars = np.zeros((V, H)), np.full((V, H), np.inf)
        bars[asking] = 0.0
        self._read(column, bars, np.flatnonzero(self.values.known & (np.arange(V) != asking)), asking)
        self._extend(asking, column, bars)

    def _read(self, column: Array, bars: Array, tokens: Ids, asking: int) -> None:
        if len(tokens):
            values = self.values
            seen, read = self.pairs.labelled(
                tokens, np.full(len(tokens), asking), values.values, values.uncertain
            )
            column[tokens] = seen.scores
            bars[tokens] = np.where(read[:, None], np.minimum(seen.errors, _SOFT), _SOFT)

    def _extend(self, asking: int, column: Array, bars: Array) -> None:
        """Queries of an asker whose whole column is read, with a new direction in heads that need one."""
        V, H = column.shape
        self.columns += 1
        sure = (bars < _STRONG).all(axis=1) & self.strong
        if sure.sum() < 2 * self.columns + 2:
            # pairs beside this asker are not what its values predict: they are wrong
            self.values.uncertain[asking], self.uncertain[asking] = np.inf, np.inf
            return
        for head in range(H):
            design = self.keys[head] - self.keys[head][asking]
            query = np.linalg.lstsq(design[sure], column[sure, head], rcond=None)[0]
            left = np.where(np.isfinite(bars[:, head]), column[:, head] - design @ query, 0.0)
            size = float(np.sqrt(np.mean(left[sure] ** 2)))
            usual = float(np.median(bars[sure, head] + self.uncertain[sure]))
            if size > _NEW_DIRECTION * max(usual, 1e-13):
                self.keys[head] = np.column_stack([self.keys[head], left / size])
                self.queries[head] = np.column_stack([self.queries[head], np.zeros(V)])
                self.queries[head][asking] = np.append(query, size)
                self.uncertain = np.maximum(self.uncertain, bars[:, head])
            else:
                self.queries[head][asking] = query
        self.fitted[asking] = True

    def fit_columns(self, asking: Ids) -> Mask:
        """Queries of askers from a few pairs each; whether each column is explained."""
        if not len(asking) or not any(keys.shape[1] for keys in self.keys):
            return np.zeros(len(asking), dtype=bool)
        tokens = self._chosen(asking, np.flatnonzero(self.strong), self.keys, self.keys)
        designs = [keys[tokens] - keys[asking][:, None] for keys in self.keys]
        bars = self._bars(tokens) + self._bars(asking)[:, None]
        problems = self._problems(tokens, np.broadcast_to(asking[:, None], tokens.shape), designs, bars)
        solved, fits = problems.solve(self.pairs.rng)
        good = np.asarray(fits.rms <= problems.limits)
        for queries, found in zip(self.queries, solved, strict=True):
            queries[asking[good]] = found[good]
        self.fitted[asking[good]] = True
        return good

    def fit_keys(self, tokens: Ids) -> None:
        """Keys and values of tokens that whole columns did not show well, from other askers."""
        if not len(tokens):
            return
        values = self.values
        asking = self._chosen(tokens, np.flatnonzero(self.complete_tokens), self.queries, None)
        designs = [queries[asking] for queries in self.queries]
        own = [
            np.einsum("prk,prk->pr", keys[asking], design)
            for keys, design in zip(self.keys, designs, strict=True)
        ]
        problems = self._problems(
            np.broadcast_to(tokens[:, None], asking.shape), asking, designs, self._bars(asking)
        )
        problems = replace(
            problems, offsets=-np.stack(own, axis=2), doubts=_MARGIN * values.uncertain[tokens]
        )
        solved, fits = problems.solve(self.pairs.rng)
        good = fits.rms <= problems.limits
        for keys, found in zip(self.keys, solved, strict=True):
            keys[tokens[good]] = found[good]
        values.values[tokens[good]] += problems.shifts(fits.unknowns)[good]
        values.uncertain[tokens[good]] = _REFITTED * self.pairs.spread
        self.uncertain[tokens[good]] = _REFITTED
        self.checked[tokens[good]] = True

    def _bars(self, tokens: Ids) -> Array:
        """How far answers may be off by errors of the keys and values of tokens."""
        uncertain = np.minimum(self.uncertain[tokens], _STRONG) * self.pairs.spread
        return np.asarray(self.values.uncertain[tokens] + uncertain)

    def _problems(self, tokens: Ids, asking: Ids, designs: list[Array], bars: Array) -> LinearScores:
        """Asks pairs, and states what they say. bars: (P, R), of what is taken as known."""
        pairs, values = self.pairs, self.values.values
        patterns = pairs.label_patterns
        found = patterns.ask(pairs.sequences, tokens.ravel(), asking.ravel()).reshape(*tokens.shape, -1)
        weights = values[tokens] - values[asking]
        return LinearScores(
            designs,
            np.zeros(weights.shape),
            weights,
            patterns.ratios,
            found - pairs.totals[asking][:, :, None],
            pairs.limit + _MARGIN * bars.max(axis=1),
        )

    def _chosen(self, asked: Ids, usable: Ids, parts: list[Array], origins: list[Array] | None) -> Ids:
        """For every column (or token) the partners, of several draws, that tell its unknowns best."""
        rng, values = self.pairs.rng, self.values.values
        size = max(part.shape[1] for part in parts) + _SPARE
        if len(usable) < 2 * size:
            raise Unresolved(
                f"only {len(usable)} of {len(values)} tokens show their scores in {self.pairs.heads} heads, "
                f"and {2 * size} are needed to compare others with; longer sequences would help"
            )
        pool = rng.choice(usable, min(len(usable), max(_POOL, 4 * size)), replace=False)
        best, chosen = np.full(len(asked), -1.0), np.empty((len(asked), size), dtype=np.int64)
        spreads = values[usable].std(axis=0)
        for _ in range(_DRAWS):
            drawn = rng.permuted(np.broadcast_to(pool, (len(asked), len(pool))), axis=1)[:, :size]
            worth = np.full(len(asked), np.inf)
            for head, part in enumerate(parts):
                apart = np.abs(values[drawn, head] - values[asked, head][:, None]) / spreads[head]
                design = part[drawn] - (0.0 if origins is None else origins[head][asked][:, None])
                if part.shape[1]:
                    seen = design * np.minimum(apart, 1.0)[:, :, None]
                    worth = np.minimum(worth, np.linalg.svd(seen, compute_uv=False)[:, -1])
            worth[(drawn == asked[:, None]).any(axis=1)] = -0.5
            better = worth > best
            best, chosen[better] = np.where(better, worth, best), drawn[better]
        return chosen
