"""The heads of a pre-norm block behind a mean over rows, before anything else is known of it.

Huge rows are passed on as they are, and the network sees their directions alone, whatever the heads add. So
the answer to a sequence, less the mean of the answers to its rows alone, is what the heads add more than for
single rows, up to the network's steepness over the size of rows. `mean_lifting` takes heads apart from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, scores_of_heads, values_of_heads
from unsoftmax.learners.encoder_block.mean_lifting import coefficients, lift_means
from unsoftmax.learners.encoder_block.tokens import SphereTokens, unit_rows
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.outcomes import Unresolved

__all__ = ["LONGEST_MEAN", "find_mean_heads"]

_SIZE = 2.0**20  # of rows: the network moves by 1e-6 of what heads add, and answers round to 1e-10
_LENGTHS = np.array([8.0, 24.0, 72.0])  # one key among so many rows: three coefficients of the series
_SCORE_LENGTHS = np.array([24.0, 72.0])
LONGEST_MEAN = int(_LENGTHS.max())
_KEYS = 2  # of one query for scores: what their share squared leaves is a thousandth, for the joint fit
_SIZES = 0.9 * 0.7 ** np.arange(8.0)  # of the sphere's radius: how far keys may be from the other rows
_NEGLIGIBLE = 1e-5  # relative singular value of means that counts as none: measured 1e-7 to 1e-6
_LEFT = 3e-6  # of the means: right fits left 4e-8 to 1.4e-6, wrong ones 6e-4
_MOST_HEADS = 32  # a cap, as for blocks that answer one row
_SURPLUS = 1.8  # rows b over unknowns of the null space
_LEAST_ODDS = 0.02  # of a weight that is read


def find_mean_heads(asks: AsksSequences, basis: Array, rng: np.random.Generator) -> FoundHeads:
    """Heads whose values are seen through whatever linear map follows them; basis (d, k) of what the first
    norm sees."""
    d, k = basis.shape
    means = _Means(asks, basis)
    tokens = SphereTokens(k, float(np.sqrt(d)))
    reason = "sequences of two rows do not take the heads apart at any distance of the rows"
    heads = _number_of_heads(means, tokens, rng)
    for part in _SIZES:
        size = part * tokens.radius
        split = _Split(means, tokens, heads, rng)
        if any(split(size * unit_rows(rng.standard_normal(tokens.width))) is None for _ in range(2)):
            continue
        try:
            values = values_of_heads(split, k, size, rng)
            scores = scores_of_heads(_Scores(means, tokens, values, rng), tokens, size, rng)
        except Unresolved as stop:  # smaller differences may be taken apart
            reason = stop.reason
            continue
        return FoundHeads.of(values, scores)
    raise Unresolved(reason)


@dataclass(frozen=True)
class _Means:
    """Answers to sequences less the mean of those to their rows alone, for tokens on the sphere."""

    asks: AsksSequences
    basis: Array

    def __call__(self, keys: Array, rows: Array, lengths: Array) -> Array:
        """(q, J, m): keys (J, n, k) once each, and rows (J, k) as often as each length asks for."""
        k, b = (_SIZE * tokens @ self.basis.T for tokens in (keys, rows))
        (J, n), d = keys.shape[:2], b.shape[1]
        alone_b, alone_k = self.asks(b[:, None]), self.asks(k.reshape(-1, 1, d)).reshape(J, n, -1)
        found = []
        for length in lengths.astype(int):
            sequences = np.concatenate([k, np.repeat(b[:, None], length - n, axis=1)], axis=1)
            alone = (length - n) * alone_b + alone_k.sum(axis=1)
            found.append(self.asks(sequences) - alone / length)
        return np.stack(found)


def _beside(means: _Means, tokens: SphereTokens, a: Array, count: int, rng: np.random.Generator) -> Array:
    """(q, count, m): one key that differs by a from random rows."""
    b = tokens.askers_beside(a, count, rng)
    return means((a + b)[:, None], b, _LENGTHS)


def _rows_for(heads: int) -> int:
    return int(_SURPLUS * (heads * (heads + 1) // 2 + 2 * heads + 1)) + 2


def _number_of_heads(means: _Means, tokens: SphereTokens, rng: np.random.Generator) -> int:
    """Dimensions of what heads add for one difference, over enough rows to tell."""
    count = _rows_for(2)
    while True:
        a = _SIZES[1] * tokens.radius * unit_rows(rng.standard_normal(tokens.width))
        found = _beside(means, tokens, a, count, rng)
        sizes = np.linalg.svd(found.reshape(-1, found.shape[2]), compute_uv=False)
        heads = int((sizes > _NEGLIGIBLE * sizes[0]).sum())
        if heads >= found.shape[2]:
            raise Unresolved(
                f"behind a mean over rows heads are told apart where answers hold more numbers than there "
                f"are heads, and these hold {found.shape[2]}"
            )
        if heads > _MOST_HEADS:
            raise Unresolved(f"rows of a sequence add up as those of more than {_MOST_HEADS} heads do")
        if count >= _rows_for(heads):
            return heads
        count = _rows_for(heads)


@dataclass(frozen=True)
class _Split:
    """Outputs V_h a of all heads for one difference a."""

    means: _Means
    tokens: SphereTokens
    heads: int
    rng: np.random.Generator

    def __call__(self, a: Array) -> Array | None:
        found = _beside(self.means, self.tokens, a, _rows_for(self.heads), self.rng)
        try:
            outputs, left = lift_means(found, _LENGTHS, self.heads, self.rng)
        except (Restart, np.linalg.LinAlgError):
            return None
        return outputs if left < _LEFT else None


@dataclass(frozen=True)
class _Scores:
    """Scores (H, k) of k keys around a row b, few a query; None where a weight is not readable."""

    means: _Means
    tokens: SphereTokens
    values: Array
    rng: np.random.Generator

    def __call__(self, b: Array, reach: float) -> tuple[Array | None, Array]:
        H, m, k = self.values.shape
        keys = self.tokens.around(b, np.linalg.qr(self.rng.standard_normal((k, k)))[0].T, reach)
        differences = keys - b
        n = max(1, min(_KEYS, m // H))
        groups = [np.arange(start, min(start + n, k)) for start in range(0, k, n)]
        if len(groups[-1]) < n:
            groups[-1] = np.arange(k - n, k)
        rows = np.repeat(b[None], len(groups), axis=0)
        first = coefficients(self.means(keys[np.array(groups)], rows, _SCORE_LENGTHS), _SCORE_LENGTHS)[0]
        scores = np.empty((H, k))
        for group, there in zip(groups, first, strict=True):
            design = np.concatenate([self.values[h] @ differences[group].T for h in range(H)], axis=1)
            odds = 1.0 + np.linalg.lstsq(design, there, rcond=None)[0].reshape(H, -1)
            if float(odds.min()) < _LEAST_ODDS:
                return None, differences
            scores[:, group] = np.log(odds)
        return scores, differences
