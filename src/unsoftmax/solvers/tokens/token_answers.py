"""Answers to sequences of token ids in a flat form: one entry for each different token and place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids

__all__ = ["FlatSequences"]


@dataclass(frozen=True, eq=False)
class FlatSequences:
    """n sequences of E entries together: entry e is the token tokens[e] at places[e], `copies` times.

    starts: the first entry of every sequence, (n,). rows: the sequence of every entry, (E,). asking: the last
    token, (n,), at the last place. Without positions all places are 0, and copies of a token are one entry.

    >>> flat = FlatSequences.of([np.array([[4, 4, 7]])], positions=False)
    >>> flat.tokens, flat.copies, flat.asking
    (array([4, 7]), array([2., 1.]), array([7]))
    """

    tokens: Ids
    places: Ids
    copies: Array
    rows: Ids
    starts: Ids
    asking: Ids
    last: Ids

    @classmethod
    def of(cls, batches: Iterable[Ids], *, positions: bool) -> FlatSequences:
        """Batches (B, N) of ids, one after the other."""
        tokens, places, copies, lengths, asking, last = [], [], [], [], [], []
        for ids in batches:
            count, length = ids.shape
            asking.append(ids[:, -1])
            last.append(np.full(count, length - 1 if positions else 0))
            if positions:
                tokens.append(ids.ravel())
                places.append(np.tile(np.arange(length), count))
                copies.append(np.ones(ids.size))
                lengths.append(np.full(count, length))
                continue
            ordered = np.sort(ids, axis=1)
            new = np.column_stack([np.ones(count, dtype=bool), ordered[:, 1:] != ordered[:, :-1]])
            at = np.flatnonzero(new)
            tokens.append(ordered.ravel()[at])
            copies.append(np.diff(np.append(at, ids.size)).astype(np.float64))
            places.append(np.zeros(len(at), dtype=np.int64))
            lengths.append(new.sum(axis=1))
        sizes = np.concatenate(lengths)
        return cls(
            np.concatenate(tokens),
            np.concatenate(places),
            np.concatenate(copies),
            np.repeat(np.arange(len(sizes)), sizes),
            np.cumsum(sizes) - sizes,
            np.concatenate(asking),
            np.concatenate(last),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def sums(self, entries: Array) -> Array:
        """The sum over the entries of every sequence."""
        return np.asarray(np.add.reduceat(entries, self.starts, axis=0))

    def softmax(self, scores: Array) -> Array:
        """Weights of the entries, copies counted."""
        top = np.maximum.reduceat(scores, self.starts)[self.rows]
        weights = self.copies * np.exp(scores - top)
        return np.asarray(weights / self.sums(weights)[self.rows])
