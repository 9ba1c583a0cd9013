"""n copies of a token before m copies of the asking one, for several ratios n/m."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens.sequences import TokenSequences

__all__ = ["CopyPatterns"]

_LARGEST_RATIO = 32  # e^3.5: scores beyond are read from the ends


@dataclass(frozen=True)
class CopyPatterns:
    """counts: (n, m) of every pattern.

    >>> CopyPatterns.even(3, 64).counts
    ((1, 32), (1, 1), (32, 1))
    """

    counts: tuple[tuple[int, int], ...]

    @classmethod
    def even(cls, count: int, longest: int) -> CopyPatterns:
        """Patterns with logarithms of n/m evenly apart; fewer where `longest` does not allow as many."""
        most = np.log(max(1, min(_LARGEST_RATIO, longest - 1)))
        wanted = [
            (max(1, round(np.exp(place))), max(1, round(np.exp(-place))))
            for place in np.linspace(-most, most, count)
        ]
        return cls(tuple(dict.fromkeys(wanted)))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def ratios(self) -> Array:
        """n/m of every pattern."""
        return np.array([n / m for n, m in self.counts])

    def ask(self, sequences: TokenSequences, tokens: Ids, asking: Ids) -> Array:
        """Answers (P, q) for every pair and pattern."""
        pairs = np.stack([tokens, asking], axis=1)
        answers = [
            sequences.copies(pairs, np.broadcast_to(np.array(each, dtype=np.int64), pairs.shape))
            for each in self.counts
        ]
        return np.stack(answers, axis=1)
