"""Which row of a sequence asks, and is answered."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AskingRow"]


class AskingRow(StrEnum):
    """Which row of a sequence is answered: one of them, or the mean over all, each of which asks once."""

    LAST = "last"
    FIRST = "first"
    MEAN = "mean"
