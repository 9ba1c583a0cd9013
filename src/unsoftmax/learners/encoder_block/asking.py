"""What the block learners ask: sequences of any length, answered with the last row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import Unresolved

__all__ = ["AsksSequences", "sequences_of", "within"]

AsksSequences: TypeAlias = Callable[[Array], Array]  # (B, N, d) -> (B, m)


def sequences_of(asker: Asker) -> AsksSequences:
    """The target's answers, asked in batches of a good size; a single number is a vector of length 1."""

    def ask(batch: Array) -> Array:
        size = asker.batch_size(batch.shape[1])
        parts = [asker.ask(batch[i : i + size]) for i in range(0, len(batch), size)]
        return np.concatenate(parts).reshape(len(batch), -1)

    return ask


def within(asks: AsksSequences, bound: float) -> AsksSequences:
    """The same target, never asked with a longer row."""

    def ask(batch: Array) -> Array:
        longest = float(np.linalg.norm(batch, axis=2).max())
        if longest > bound:
            raise Unresolved(
                f"a step of the recovery needs rows of norm {longest:.2g}, and the target takes {bound:.2g} "
                "(input_bound)"
            )
        return asks(batch)

    return ask
