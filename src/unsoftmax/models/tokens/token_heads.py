"""Attention over token ids: f(t_1..t_N) = c + Σ_h Σ_i softmax_i(keys_h[t_i]·queries_h[t_N]) values_h[t_i]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import WithConstant, relative
from unsoftmax.models.head_sums import constant_distance, matched_heads, numbered_heads
from unsoftmax.models.matrices import difference_norm
from unsoftmax.models.tokens.hidden_pairs import hidden_pairs
from unsoftmax.models.tokens.token_head import TokenHead, TokenPositions
from unsoftmax.oracles import Ids, TokenIds

__all__ = ["TokenHeads"]

_SAME = 1e-12  # relative: products of float64 factors cannot tell scores apart that are closer than this
_PARTS = ("keys", "queries", "values")
_PLACES = tuple(f"positions.{part}" for part in _PARTS)


class TokenHeads(WithConstant):
    """Heads over one vocabulary whose answers add up. Embeddings are inside: nothing but ids goes in.

    >>> model = TokenHeads([TokenHead.of(np.eye(3), np.eye(3), [1.0, 2.0, 3.0])])
    >>> model(np.array([[0], [2]])), model.vocabulary
    (array([1., 3.]), 3)
    """

    family: ClassVar[str] = "tokens"

    def __init__(self, heads: Sequence[TokenHead], c: object = 0.0) -> None:
        self.heads: tuple[TokenHead, ...] = tuple(heads)
        self._c: Array = np.array(c, dtype=np.float64)
        if not self.heads:
            raise UsageError(
                "a token model needs at least one head; a constant is one head whose values are all zero"
            )
        if len({head.values.shape for head in self.heads}) > 1:
            raise UsageError("all heads need values of one shape")
        if len({None if head.positions is None else head.positions.longest for head in self.heads}) > 1:
            raise UsageError("all heads need the same number of positions, or none")
        if self._c.shape not in ((), self.heads[0].values.shape[1:]) or not np.isfinite(self._c).all():
            raise UsageError(
                f"c must be a finite number or of shape {self.heads[0].values.shape[1:]}, not {self._c}"
            )

    @property
    def vocabulary(self) -> int:
        """Number of tokens V; ids run from 0 to V - 1."""
        return self.heads[0].vocabulary

    @property
    def longest(self) -> int | None:
        """The longest sequence that learned positions allow; None without positions."""
        places = self.heads[0].positions
        return None if places is None else places.longest

    @property
    def width(self) -> int:
        """Columns in one-hot coordinates: the vocabulary."""
        return self.vocabulary

    @property
    def outputs(self) -> int | None:
        values = self.heads[0].values
        return None if values.ndim == 1 else int(values.shape[1])

    @property
    def ranks(self) -> list[int]:
        return [head.rank for head in self.heads]

    @property
    def parameters(self) -> int:
        """Σ_h r(2V − 1 − r) for scores, and V values per head of which only the sum of the constants shows.

        Learned positions add L − 1 keys, L − 2 queries and L − 1 values per head.
        """
        V, m = self.vocabulary, self.outputs or 1
        places = 0 if self.longest is None else max(0, self.longest - 1)
        scores = sum(r * (2 * V - 1 - r + places + max(0, places - 1)) for r in self.ranks)
        return scores + m * (len(self.heads) * (V - 1 + places) + 1)

    def __call__(self, batch: Array | Ids, /) -> Array:
        ids = self._ids(batch)
        return np.asarray(self._c + sum(head(ids) for head in self.heads))

    def _ids(self, batch: Array | Ids) -> Ids:
        ids = TokenIds(self.vocabulary).checked(batch).astype(np.int64, copy=False)
        if self.longest is not None and ids.shape[1] > self.longest:
            raise UsageError(
                f"a sequence of {ids.shape[1]} tokens, but the model has {self.longest} positions"
            )
        return ids

    @property
    def spread(self) -> float:
        """How far answers can be apart, at most: the sum over heads of the spread of their values."""
        return sum(head.spread for head in self.heads)

    def sensitivity(self, batch: Array) -> Array:
        size = self.spread
        return np.full(len(batch), size if size > 0.0 else max(1.0, float(np.max(np.abs(self._c)))))

    def score_strength(self) -> float:
        """Root of the mean square of the scores, less their mean, of two tokens."""
        return float(np.median([head.table.norm() / head.table.width for head in self.heads]))

    def hidden_pairs(self, resolution: float, longest: int = 64) -> list[Ids]:
        """For every head the pairs (token, asking token), (n, 2), whose score shows in no answer.

        No sequence of up to `longest` tokens is answered otherwise by more than `resolution`, relative to the
        spread of the values, whatever these scores are: a weight that is too small stays so, and a token that
        outweighs all others does. Of several tokens that outweigh all others, differences show, and their
        common level does not.

        >>> weak = TokenHead.of([[0.0], [1.0], [-90.0]], [[1.0], [1.0], [1.0]], [0.0, 1.0, 2.0])
        >>> TokenHeads([weak]).hidden_pairs(1e-15)[0].tolist()
        [[2, 0], [2, 1], [0, 2], [1, 2]]
        """
        if not resolution > 0.0 or longest < 2:
            raise UsageError(
                f"resolution must be positive and longest at least 2, not {resolution} and {longest}"
            )
        if self.longest is not None:
            raise UsageError(
                "scores of a model with positions depend on places as well; there is no one table"
            )
        return [hidden_pairs(head, resolution * (self.spread or 1.0), longest) for head in self.heads]

    def canonical(self) -> Self:
        """Canonical heads: equal scores merge, constant values go into c, the largest values come first."""
        merged: list[TokenHead] = []
        for head in (head.canonical() for head in self.heads):
            for place, other in enumerate(merged):
                if difference_norm(head.table, other.table) <= _SAME * max(
                    head.table.norm(), other.table.norm()
                ):
                    merged[place] = _summed(other, head)
                    break
            else:
                merged.append(head)
        size = max(float(np.linalg.norm(head.values)) for head in merged)
        kept = [head for head in merged if _moves(head) > _SAME * size and _moves(head) > 0.0]
        if not kept:
            still = TokenHead(
                np.zeros((self.vocabulary, 0)),
                np.zeros((self.vocabulary, 0)),
                np.zeros_like(merged[0].values),
            )
            kept = [still]
        kept.sort(key=lambda head: -float(f"{np.linalg.norm(head.values):.9e}"))
        return type(self)(kept, np.asarray(self._c + sum(head.constant for head in self.heads)))

    def distance(self, other: Self) -> float:
        """Largest relative difference of scores that show, of values and constants, heads matched best.

        >>> one = TokenHead.of([[0.0], [1.0]], [[1.0], [2.0]], [0.0, 1.0])
        >>> moved = TokenHead.of([[5.0], [7.0]], [[0.5], [1.0]], [3.0, 4.0])
        >>> TokenHeads([one]).distance(TokenHeads([moved], -3.0)) < 1e-15
        True
        """
        self._same_family(other)
        mine, theirs = self.canonical(), other.canonical()
        costs = np.array([[_head_distance(a, b) for b in theirs.heads] for a in mine.heads])
        constant = constant_distance(mine._c, theirs._c, [head.values for head in mine.heads])
        return max(matched_heads(costs), constant)

    def tensors(self) -> dict[str, Array]:
        parts: dict[str, Array] = {"c": self._c}
        for index, head in enumerate(self.heads):
            parts |= {f"heads.{index}.{name}": getattr(head, name) for name in _PARTS}
            if head.positions is not None:
                parts |= {f"heads.{index}.positions.{name}": getattr(head.positions, name) for name in _PARTS}
        return parts

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        heads = numbered_heads(tensors, "token model")
        return cls([_from_parts(head) for head in heads], tensors.get("c", 0.0))

    def __repr__(self) -> str:
        return f"TokenHeads(vocabulary={self.vocabulary}, heads={len(self.heads)}, ranks {self.ranks})"


def _moves(head: TokenHead) -> float:
    """Size of the values that differ from token to token or from place to place."""
    places = 0.0 if head.positions is None else float(np.linalg.norm(head.positions.values))
    return float(np.hypot(np.linalg.norm(head.values), places))


def _summed(first: TokenHead, second: TokenHead) -> TokenHead:
    """Two heads of equal scores as one."""
    places = None
    if first.positions is not None and second.positions is not None:
        places = TokenPositions(
            first.positions.keys, first.positions.queries, first.positions.values + second.positions.values
        )
    return TokenHead(first.keys, first.queries, first.values + second.values, places)


def _head_distance(mine: TokenHead, theirs: TokenHead) -> float:
    """Of two canonical heads."""
    if (mine.positions is None) != (theirs.positions is None) or mine.table.width != theirs.table.width:
        return float("inf")
    values = relative(float(np.linalg.norm(mine.values - theirs.values)), float(np.linalg.norm(mine.values)))
    if mine.positions is not None and theirs.positions is not None:
        apart = float(np.linalg.norm(mine.positions.values - theirs.positions.values))
        values = max(values, relative(apart, _moves(mine)))
    return max(values, relative(difference_norm(mine.table, theirs.table), mine.table.norm()))


def _from_parts(parts: dict[str, Array]) -> TokenHead:
    if strange := set(parts) - {*_PARTS, *_PLACES}:
        raise ModelFileError(f"a head of a token model has no tensor {min(strange)!r}")
    missing = [name for name in _PARTS if name not in parts]
    places = [name for name in _PLACES if name in parts]
    if missing or len(places) not in (0, len(_PLACES)):
        raise ModelFileError(
            f"a head of a token model has {', '.join(_PARTS)}, and all or none of {', '.join(_PLACES)}"
        )
    positions = TokenPositions.of(*(parts[name] for name in _PLACES)) if places else None
    return TokenHead.of(parts["keys"], parts["queries"], parts["values"], positions)
