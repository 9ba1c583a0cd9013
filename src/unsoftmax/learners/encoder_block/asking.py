"""What the block learners ask: sequences of any length, answered with the last row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker

__all__ = ["AsksSequences", "sequences_of"]

AsksSequences: TypeAlias = Callable[[Array], Array]  # (B, N, d) -> (B, m)


def sequences_of(asker: Asker) -> AsksSequences:
    """The target's answers, asked in batches of a good size; a single number is a vector of length 1."""

    def ask(batch: Array) -> Array:
        size = asker.batch_size(batch.shape[1])
        parts = [asker.ask(batch[i : i + size]) for i in range(0, len(batch), size)]
        return np.concatenate(parts).reshape(len(batch), -1)

    return ask
