"""Where a ledger keeps answers. In memory here; a journal on disk only has to implement the same two methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unsoftmax.oracles import Array

__all__ = ["Entry", "Journal", "MemoryJournal"]


@dataclass(frozen=True)
class Entry:
    """One call of the oracle: its phase, the shape (B, N, d) of what was sent, and the B answers."""

    phase: str
    shape: tuple[int, int, int]
    answers: Array


class Journal(Protocol):
    """Entries by position. A learner is a deterministic function of (seed, answers), so positions suffice for replay."""

    def recall(self, position: int) -> Entry | None:
        """The entry at `position`, if that call was answered before."""

    def record(self, position: int, entry: Entry) -> None:
        """Keep the entry; must not return before it is safe."""


class MemoryJournal:
    """Entries in a list: nothing survives the process."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def recall(self, position: int) -> Entry | None:
        return self.entries[position] if position < len(self.entries) else None

    def record(self, position: int, entry: Entry) -> None:
        self.entries.append(entry)
