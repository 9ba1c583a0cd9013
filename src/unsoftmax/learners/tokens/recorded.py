"""A view of an asker of token ids that remembers every answer, for a fit to all of them at the end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.learners.tokens.one_head import TokenBooks
from unsoftmax.ledger import Bill

__all__ = ["RecordedBooks"]


@dataclass(frozen=True, eq=False)
class RecordedBooks:
    """batches: ids (B, N) and answers (B,) or (B, m), in the order in which they were asked."""

    asker: TokenBooks
    batches: list[tuple[Ids, Array]] = field(default_factory=list)

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
        answers = self.asker.ask(batch)
        self.batches.append((np.asarray(batch, dtype=np.int64), answers))
        return answers

    def read(self, readout: Array | None) -> list[tuple[Ids, Array]]:
        """All batches with answers as single numbers."""
        return [(ids, answers if readout is None else answers @ readout) for ids, answers in self.batches]

    def numbers(self, readout: Array | None) -> Array:
        """All answers as single numbers, in one array."""
        return np.concatenate([answers for _, answers in self.read(readout)])

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""
        return self.asker.phase(name)

    def expect(self, total: int | None) -> None:
        """The present estimate of the whole bill."""
        self.asker.expect(total)
