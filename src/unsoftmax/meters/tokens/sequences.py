"""Sequences made of copies of tokens, asked in batches of one length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.oracles import Ids

__all__ = ["Counts", "Mask", "TokenAnswers", "TokenSequences"]

Counts = Ids
Mask = NDArray[np.bool_]


class TokenAnswers(Protocol):
    """Where ids are asked: a ledger of a target that takes token ids, or a view of one."""

    @property
    def width(self) -> int:
        """The vocabulary."""

    @property
    def outputs(self) -> int | None:
        """None when an answer is one number, m when it is a vector."""

    def batch_size(self, length: int) -> int:
        """How many sequences of `length` ids make a good batch."""

    def ask(self, batch: Array) -> Array:
        """Answers to a batch."""


@dataclass(frozen=True)
class TokenSequences:
    """Asks ids, and reads vector answers through one readout.

    longest: the most tokens of a sequence. readout: (m,) for vector answers, None for numbers.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle, OracleSpec, TokenIds
    >>> ledger = Ledger(FunctionOracle(lambda ids: ids.mean(axis=1), OracleSpec(domain=TokenIds(9))))
    >>> TokenSequences(ledger, 64).copies(np.array([[8, 2]]), np.array([[3, 1]]))
    array([6.5])
    """

    answers: TokenAnswers
    longest: int
    readout: Array | None = None

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.answers.width

    def values(self) -> Array:
        """The answer to every token alone: (V,), or (V, m) for vector answers."""
        return self._ask(np.arange(self.vocabulary)[:, None])

    def raw(self, ids: Ids) -> Array:
        """Answers to a batch (B, N) as the target gives them."""
        return self._ask(ids)

    def ask(self, ids: Ids) -> Array:
        """One number for every sequence of a batch (B, N)."""
        return self.read(self._ask(ids))

    def read(self, answers: Array) -> Array:
        """Answers as single numbers, (B,)."""
        return answers if self.readout is None else np.asarray(answers @ self.readout)

    def copies(self, tokens: Ids, counts: Counts) -> Array:
        """One number for every sequence of counts[p, 0] copies of tokens[p, 0], then of tokens[p, 1], ..."""
        lengths = counts.sum(axis=1)
        answers = np.empty(len(tokens))
        for length in np.unique(lengths):
            chosen = np.flatnonzero(lengths == length)
            ends = np.cumsum(counts[chosen], axis=1)
            place = np.arange(length)[None, :]
            ids = np.repeat(tokens[chosen, :1], length, axis=1)
            for part in range(1, tokens.shape[1]):
                ids = np.where(place >= ends[:, part - 1 : part], tokens[chosen, part : part + 1], ids)
            answers[chosen] = self.ask(ids)
        return answers

    def _ask(self, ids: Ids) -> Array:
        step = self.answers.batch_size(ids.shape[1])
        parts = [self.answers.ask(cast(Array, ids[at : at + step])) for at in range(0, len(ids), step)]
        return np.concatenate(parts)
