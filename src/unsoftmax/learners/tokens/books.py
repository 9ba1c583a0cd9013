"""Where learners of token ids ask: a ledger, or a view of one that remembers, or knows some tokens only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.ledger import Bill
from unsoftmax.meters.tokens import TokenAnswers

__all__ = ["RecordedBooks", "SomeTokens", "TokenBooks", "View"]


class TokenBooks(TokenAnswers, Protocol):
    """What a learner of tokens asks through: a ledger, or a view of one."""

    @property
    def bill(self) -> Bill:
        """What was paid until now."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""

    def expect(self, total: int | None) -> None:
        """The present estimate of the whole bill."""


@dataclass(frozen=True, eq=False)
class View:
    """What views of an asker leave as it is."""

    asker: TokenBooks

    @property
    def width(self) -> int:
        """The vocabulary."""
        return self.asker.width

    @property
    def outputs(self) -> int | None:
        """None when an answer is one number, m when it is a vector."""
        return self.asker.outputs

    @property
    def bill(self) -> Bill:
        """What was paid until now."""
        return self.asker.bill

    def batch_size(self, length: int) -> int:
        """How many sequences of `length` ids make a good batch."""
        return self.asker.batch_size(length)

    def ask(self, batch: Array) -> Array:
        """Answers to a batch of ids."""
        return self.asker.ask(batch)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""
        return self.asker.phase(name)

    def expect(self, total: int | None) -> None:
        """The present estimate of the whole bill."""
        self.asker.expect(total)


@dataclass(frozen=True, eq=False)
class SomeTokens(View):
    """Some of the tokens only, under the ids 0, 1, ..."""

    tokens: Ids

    @property
    def width(self) -> int:
        return len(self.tokens)

    def ask(self, batch: Array) -> Array:
        return self.asker.ask(cast(Array, self.tokens[np.asarray(batch)]))


@dataclass(frozen=True, eq=False)
class RecordedBooks(View):
    """Remembers every answer, for a fit to all of them at the end.

    batches: ids (B, N) and answers (B,) or (B, m), in the order in which they were asked.
    """

    batches: list[tuple[Ids, Array]] = field(default_factory=list)

    def ask(self, batch: Array) -> Array:
        answers = self.asker.ask(batch)
        self.batches.append((np.asarray(batch, dtype=np.int64), answers))
        return answers

    def read(self, readout: Array | None) -> list[tuple[Ids, Array]]:
        """All batches with answers as single numbers."""
        return [(ids, answers if readout is None else answers @ readout) for ids, answers in self.batches]

    def numbers(self, readout: Array | None) -> Array:
        """All answers as single numbers, in one array."""
        return np.concatenate([answers for _, answers in self.read(readout)])
