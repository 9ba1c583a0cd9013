"""Keys and queries of a score table while they are filled in, and by how much their errors move answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import PairReader, TokenPairMeter
from unsoftmax.models.tokens.rivals import rivals
from unsoftmax.solvers.score_table.cross import Cross

__all__ = ["Table"]

# tokens before the asking one, in the sequences by which losses are estimated
_LENGTHS = (1, 1, 1, 1, 3, 3, 3, 3, 15, 15, 15, 15, 63, 63, 63, 63)
_POOL = 96  # tokens, or askers, among which an additional entry is chosen
_PRIOR = 100.0  # how far queries may be from zero, against those of the cross
_KEY_BAR = 16.0  # times its loss over the spread: at best a score moves answers by a quarter of that
_RIVALS = 8  # of every asking token: where it outweighs most others, random sequences show none of them


@dataclass(eq=False)
class Table:
    """T_ij = (keys_i − keys_j)·queries_j, with rank r.

    losses: for every asking token, how far answers are usually off at most. token_losses: the same by the
    keys of a token. query_errors: root mean square error of the scores of every asking token, by its query.
    limit: loss up to which a column needs no further entry. extra: the most further entries.
    samples: tokens of sequences by which losses are estimated. pool: tokens for additional entries.
    rivals_count: whether columns have to tell how tokens compete with the asking one.
    """

    reader: PairReader
    cross: Cross
    limit: float
    extra: int
    rng: np.random.Generator
    keys: Array = field(init=False)
    queries: Array = field(init=False)
    losses: Array = field(init=False)
    token_losses: Array = field(init=False)
    query_errors: Array = field(init=False)
    samples: list[Ids] = field(init=False)
    pool: Ids = field(init=False)
    _key_variances: Array = field(init=False)
    prior: float = 1.0
    rivals_count: bool = False

    def __post_init__(self) -> None:
        size = self.meter.vocabulary
        self.keys = self.cross.keys.copy()
        self.queries = np.zeros((size, self.cross.rank))
        self.losses, self.token_losses, self.query_errors = np.zeros(size), np.zeros(size), np.zeros(size)
        strong = np.flatnonzero(self.cross.strong)
        longest = self.meter.sequences.longest - 1
        self.samples = [self.rng.choice(strong, min(length, longest)) for length in _LENGTHS]
        drawn = self.rng.choice(strong, min(_POOL, len(strong)), replace=False)
        self.pool = np.unique(np.concatenate([drawn, self.cross.rows]))
        self._key_variances = np.where(self.cross.strong[:, None], self.cross.errors, 0.0) ** 2
        self._fit_cross()

    @property
    def meter(self) -> TokenPairMeter:
        """What reads scores."""
        return self.reader.meter

    @property
    def rank(self) -> int:
        """Rank of the scores."""
        return self.cross.rank

    def own_scores(self, asking: Ids, queries: Array) -> Array:
        """keys_j·queries_j, which is subtracted from every score of the column."""
        return np.asarray(np.einsum("nr,nr->n", self.keys[asking], queries))

    def count_rivals(self) -> None:
        """From now on columns have to tell how tokens compete with the asking one."""
        self.rivals_count = True

    def rivals(self, asking: Ids, queries: Array) -> Ids:
        """For every asking token those that compete with it, (n, k); none before they count."""
        if not self.rivals_count:
            return np.empty((len(asking), 0), dtype=np.int64)
        own, values = self.own_scores(asking, queries), self.meter.values
        return rivals(self.keys, values, own, values[asking], queries, _RIVALS)

    def key_bars(self, tokens: Ids, queries: Array) -> Array:
        """How far scores of columns with these queries (n, r) may be off by the keys of tokens (n, m).

        Keys of strong tokens are scores that were read; those of weak ones were fitted.
        """
        mix = queries @ self.cross.basis.T
        read = np.sqrt(np.einsum("nmr,nr->nm", self._key_variances[tokens], mix**2))
        return np.asarray(np.hypot(read, self._fitted_keys[tokens]))

    @property
    def _fitted_keys(self) -> Array:
        """How far scores may be off by the keys of each token, where they were fitted, (V,)."""
        return np.asarray(_KEY_BAR * self.token_losses / self.meter.spread)

    def score_errors(self) -> Array:
        """Root mean square error of the scores of every asking token, by its query and by all keys."""
        mix = self.queries @ self.cross.basis.T
        read = mix**2 @ self._key_variances[self.cross.strong].mean(axis=0)
        return np.asarray(np.sqrt(self.query_errors**2 + read + np.mean(self._fitted_keys**2)))

    def _fit_cross(self) -> None:
        """Queries of the askers in the cross, from their whole columns."""
        strong = self.cross.strong
        sharpest = self.meter.noise / self.meter.spread
        for place, asker in enumerate(self.cross.askers):
            weights = 1.0 / np.maximum(self.cross.errors[strong, place], sharpest)
            design = (self.keys[strong] - self.keys[asker]) * weights[:, None]
            scores = self.cross.scores[strong, place] * weights
            self.queries[asker] = np.linalg.lstsq(design, scores, rcond=None)[0]
        if self.rank:
            self.prior = _PRIOR * float(np.sqrt(np.mean(self.queries[self.cross.askers] ** 2)))
