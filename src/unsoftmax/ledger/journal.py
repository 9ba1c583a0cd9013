"""Where a ledger keeps answers. In memory here; a journal on disk only has to implement the same few
methods."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Entry", "Journal", "MemoryJournal", "same_sketch", "sketch"]

_SKETCH_TOLERANCE = 1e-7  # last bits that another BLAS changes are far below, other queries far above


@dataclass(frozen=True)
class Entry:
    """One call of the oracle: its phase, the shape (B, N, d) of what was sent, a sketch of it, the B answers,
    and the retries it took."""

    phase: str
    shape: tuple[int, int, int]
    answers: Array
    sketch: tuple[float, float] = (0.0, 0.0)
    retries: int = 0


class Journal(Protocol):
    """Entries by position. A learner is a deterministic function of (seed, answers), so positions suffice for
    replay.

    durable: whether entries outlive the process, and so carry a sketch of what was asked.
    """

    @property
    def durable(self) -> bool: ...

    def recall(self, position: int) -> Entry | None:
        """The entry at `position`, if that call was answered before."""

    def prepare(self, position: int, phase: str, n_queries: int, n_bytes: int) -> None:
        """Called before a batch is paid: notes that it is sent, and makes sure that `n_bytes` of answers can
        be kept."""

    def record(self, position: int, entry: Entry) -> None:
        """Keep the entry; must not return before it is safe."""


class MemoryJournal:
    """Entries in a list: nothing survives the process."""

    durable = False

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def recall(self, position: int) -> Entry | None:
        return self.entries[position] if position < len(self.entries) else None

    def prepare(self, position: int, phase: str, n_queries: int, n_bytes: int) -> None:
        """Memory needs no preparation."""

    def record(self, position: int, entry: Entry) -> None:
        self.entries.append(entry)


def sketch(batch: Array) -> tuple[float, float]:
    """A projection of the batch and its norm: tells other queries from the same ones, and forgives the last
    bits that another BLAS changes.

    >>> projection, norm = sketch(np.ones((1, 1, 4)))
    >>> norm
    2.0
    """
    # token ids: no last bits to forgive, so the projection is a digest of all of them and the allowance is
    # zero
    if batch.ndim == 2:
        return float(int.from_bytes(blake2b(batch.tobytes(), digest_size=6).digest(), "little")), 0.0
    n_queries, length, width = batch.shape
    rows = np.cos(1.0 + np.arange(n_queries * length))
    columns = np.cos(np.sqrt(2.0) * (1.0 + np.arange(width)))
    flat = batch.reshape(n_queries * length, width)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(rows @ (flat @ columns)), float(np.linalg.norm(flat))


def same_sketch(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether two sketches are of the same queries.

    >>> same_sketch((1.0, 2.0), (1.0 + 1e-12, 2.0)), same_sketch((1.0, 2.0), (1.1, 2.0))
    (True, False)
    """
    size = max(first[1], second[1])
    return all(
        a == b or not np.isfinite(a - b) or abs(a - b) <= _SKETCH_TOLERANCE * size
        for a, b in zip(first, second, strict=True)
    )
