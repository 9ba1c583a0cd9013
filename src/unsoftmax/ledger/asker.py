"""What learners, meters and certificates ask through: a ledger, or a view of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger.bill import Bill

__all__ = ["Asker", "Check", "Exchange", "median_answers"]

Check = Callable[[Array, Array], None]
Exchange = tuple[Array, Array]  # a sequence (N, d), and its answer


class Asker(Protocol):
    """Sends sequences, bills them, and knows what may be sent. Views change the question, never the bill."""

    @property
    def width(self) -> int:
        """Columns of a row."""

    @property
    def outputs(self) -> int | None:
        """None when an answer is one number, m when it is a vector."""

    @property
    def input_bound(self) -> float | None:
        """Largest norm of a row; None when there is none."""

    @property
    def max_length(self) -> int | None:
        """Largest number of rows in a sequence; None when there is none."""

    @property
    def bill(self) -> Bill:
        """What was paid until now."""

    @property
    def early_queries(self) -> Sequence[Exchange]:
        """A few queries of every phase with their answers, kept to be asked again."""

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        """Answers to a batch (B, N, d): (B,), or (B, m).

        check: called with what was sent and what came back; what it refuses, by raising, is paid but not
        kept.
        """

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""

    def expect(self, total: int | None) -> None:
        """The present estimate of the whole bill, for progress."""

    def batch_size(self, length: int) -> int:
        """How many sequences of `length` rows make a good batch."""

    def blank(self, n_queries: int, length: int) -> Array:
        """A batch to fill and ask; its memory may serve again afterwards."""

    def within(self, bound: float) -> Asker:
        """A view that sends rows of at most this norm, and no longer than allowed before."""

    def on(self, basis: Array) -> Asker:
        """A view of the subspace spanned by orthonormal columns (d, k): rows are coordinates."""

    def read(self, weights: Array) -> Asker:
        """A view of vector answers through one readout: answers @ weights."""


def median_answers(asker: Asker, batch: Array, repeats: int) -> Array:
    """The batch asked so many times, and of every answer the median."""
    return asker.ask(batch) if repeats == 1 else np.median([asker.ask(batch) for _ in range(repeats)], axis=0)
