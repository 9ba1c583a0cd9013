"""One ladder for every meter: the size of rows is changed until scores are moderate, neither lost in errors
nor saturated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Moderate", "climb"]

_UNKNOWN = 1e-9  # a score below counts as this: how much smaller it is, the errors hide


@dataclass(frozen=True)
class Moderate:
    """Says by how much to change a size, from the scores seen there.

    Scores between `faint` and `strong` are moderate. Faint ones are multiplied so that the largest becomes
    `aim`, by at least `least` and at most 16; strong ones by `shrink`, and those at `unreadable` or beyond,
    where only the order of magnitude is known, by 1/16.

    >>> Moderate().factor(np.array([0.1, -0.12]), np.zeros(2))
    10.0
    """

    faint: float = 0.35
    strong: float = 2.5
    aim: float = 1.2
    least: float = 1.5
    shrink: float = 0.3
    unreadable: float = 4.0

    def factor(self, scores: Array, errors: Array | float = 0.0) -> float:
        """The factor; 1 where the scores are moderate and known."""
        largest = float(np.abs(scores).max())
        if largest > self.strong or not np.isfinite(errors).all():
            return self.shrink if largest < self.unreadable else 1.0 / 16
        if largest < self.faint:
            return float(np.clip(self.aim / max(largest, _UNKNOWN), self.least, 16.0))
        return 1.0


def climb(
    look: Callable[[float], float],
    start: float,
    largest: float = np.inf,
    *,
    tries: int = 60,
    until_turn: bool = False,
) -> float:
    """The size at which `look` is content. look(size) asks there, and returns the factor for the next size.

    It ends at a factor of 1, or where the size cannot grow any more; with `until_turn` also where the factor
    turns from growing to shrinking or back, because noise would send it to and fro. After `tries` looks, the
    last size is returned.

    >>> climb(lambda size: 2.0 if size < 5.0 else 1.0, 1.0)
    8.0
    """
    size, last = min(start, largest), 1.0
    for _ in range(tries):
        factor = look(size)
        turned = until_turn and (factor - 1.0) * (last - 1.0) < 0.0
        if factor == 1.0 or turned or (factor > 1.0 and size >= largest):
            break
        size, last = min(size * factor, largest), factor
    return float(size)
