"""One attention head over token ids, in coordinates that answers show: keys, queries and values of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.base import softmax
from unsoftmax.models.matrices import Factors
from unsoftmax.oracles import Ids

__all__ = ["TokenHead", "TokenPositions"]

_CHUNK = 1 << 22  # numbers gathered at once, 32 MB


@dataclass(frozen=True, eq=False)
class TokenPositions:
    """What a place in the sequence adds to a token's key, query and value: (L, k), (L, k), (L,) or (L, m).

    >>> TokenPositions.of(np.zeros((4, 2)), np.zeros((4, 2)), np.zeros(4)).longest
    4
    """

    keys: Array
    queries: Array
    values: Array

    @classmethod
    def of(cls, keys: object, queries: object, values: object) -> Self:
        """Positions from anything that numpy reads, checked."""
        parts = cls(*(np.array(part, dtype=np.float64) for part in (keys, queries, values)))
        if (
            parts.keys.ndim != 2
            or parts.keys.shape != parts.queries.shape
            or len(parts.values) != len(parts.keys)
        ):
            raise UsageError(
                f"positions have keys and queries (L, k) and values of L rows, not {parts.keys.shape}, "
                f"{parts.queries.shape} and {parts.values.shape}"
            )
        if not all(np.isfinite(part).all() for part in (parts.keys, parts.queries, parts.values)):
            raise UsageError("positions hold NaN or infinity")
        return parts

    @property
    def longest(self) -> int:
        """The longest sequence that has positions."""
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class TokenHead:
    """Σ_i softmax_i(keys[t_i]·queries[t_N]) values[t_i], the last token asking.

    keys, queries: (V, k). values: (V,), or (V, m) for vector answers. With positions, each of the three is
    that of the token plus that of its place.

    >>> head = TokenHead.of([[0.0], [1.0]], [[1.0], [1.0]], [0.0, 4.0])
    >>> float(head(np.array([[0, 1, 1]]))[0].round(3))
    3.379
    """

    keys: Array
    queries: Array
    values: Array
    positions: TokenPositions | None = None

    @classmethod
    def of(
        cls, keys: object, queries: object, values: object, positions: TokenPositions | None = None
    ) -> Self:
        """A head from anything that numpy reads, checked."""
        k, q, u = (np.array(part, dtype=np.float64) for part in (keys, queries, values))
        head = cls(k, q, u, positions)
        if head.keys.ndim != 2 or head.keys.shape != head.queries.shape or len(head.keys) < 1:
            raise UsageError(
                f"keys and queries must both be (V, k), not {head.keys.shape} and {head.queries.shape}"
            )
        if head.values.ndim not in (1, 2) or len(head.values) != len(head.keys):
            raise UsageError(
                f"values must be ({len(k)},) or ({len(k)}, m) to fit the keys, not {head.values.shape}"
            )
        if positions is not None and (
            positions.keys.shape[1] != head.keys.shape[1]
            or positions.values.shape[1:] != head.values.shape[1:]
        ):
            raise UsageError(
                f"positions of shape {positions.keys.shape} do not fit keys of shape {head.keys.shape}"
            )
        if not all(np.isfinite(part).all() for part in (head.keys, head.queries, head.values)):
            raise UsageError("keys, queries or values hold NaN or infinity")
        return head

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return len(self.keys)

    def scores(self, ids: Ids) -> Array:
        """keys[t_i]·queries[t_N] for every token of every sequence, (B, N)."""
        keys, queries = self.keys[ids], self.queries[ids[:, -1]]
        if self.positions is not None:
            length = ids.shape[1]
            keys, queries = keys + self.positions.keys[:length], queries + self.positions.queries[length - 1]
        return np.asarray(np.matmul(keys, queries[:, :, None])[:, :, 0])

    def __call__(self, ids: Ids) -> Array:
        answers = np.empty((len(ids), *self.values.shape[1:]))
        step = max(
            1, _CHUNK // (ids.shape[1] * max(1, self.keys.shape[1], self.values.size // self.vocabulary))
        )
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            values = self.values[part]
            if self.positions is not None:
                values = values + self.positions.values[: ids.shape[1]]
            answers[start : start + step] = np.einsum("bn,bn...->b...", softmax(self.scores(part)), values)
        return answers

    def relative_scores(self, tokens: Ids, asking: Ids) -> Array:
        """T_ij = s(i, j) − s(j, j) for pairs of tokens, without positions: what answers show of scores."""
        return np.asarray(np.einsum("pk,pk->p", self.keys[tokens] - self.keys[asking], self.queries[asking]))

    @cached_property
    def table(self) -> Factors:
        """Scores less their mean over tokens, as factors: the same for all parameters of one function.

        Rows of positions follow those of the tokens.
        """
        keys, queries = self.keys - self.keys.mean(axis=0), self.queries
        if self.positions is not None:
            keys = np.vstack([keys, self.positions.keys - self.positions.keys[0]])
            # what a query adds at all places is the tokens' own; a sequence of one token shows no query
            usual = self.positions.queries[min(1, self.positions.longest - 1)]
            queries = np.vstack([queries + usual, self.positions.queries - usual])
            queries[self.vocabulary] = 0.0
        return Factors(keys, queries)

    @cached_property
    def rank(self) -> int:
        """Numerical rank of the scores that answers show."""
        sizes = self.table.svd()[1]
        return int((sizes > sizes.max(initial=0.0) * self.table.width * np.finfo(float).eps).sum())

    @cached_property
    def spread(self) -> float:
        """Largest difference between the values of two tokens."""
        return float(np.max(self.values.max(axis=0) - self.values.min(axis=0)))

    def canonical(self) -> Self:
        """Centred keys and values, factors by singular value decomposition, places relative to the first.

        What the values lose is their mean, and with positions the value of the first place.
        """
        left, sizes, right = (part[..., : self.rank] for part in self.table.svd())
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(self.rank)])
        keys, queries, values = left * signs * sizes, right * signs, self.values - self.values.mean(axis=0)
        if self.positions is None:
            return type(self)(keys, queries, values)
        V = self.vocabulary
        places = TokenPositions(keys[V:], queries[V:], self.positions.values - self.positions.values[0])
        return type(self)(keys[:V], queries[:V], values, places)

    @property
    def constant(self) -> Array:
        """What the canonical form leaves out: the mean of the values, and the value of the first place."""
        first = 0.0 if self.positions is None else self.positions.values[0]
        return np.asarray(self.values.mean(axis=0) + first)
