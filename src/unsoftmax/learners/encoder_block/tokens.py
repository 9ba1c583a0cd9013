"""Which tokens the heads of a block may be asked with: on the sphere behind a first norm, or anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["FreeTokens", "SphereTokens", "Tokens", "unit_rows"]


def unit_rows(rows: Array) -> Array:
    """Rows of norm one."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


class Tokens(Protocol):
    """How to place asking rows and keys."""

    @property
    def width(self) -> int: ...

    @property
    def reach(self) -> float:
        """Size of the largest differences of tokens that are tried."""

    def askers(self, count: int, rng: np.random.Generator) -> Array:
        """(count, p) asking rows."""

    def askers_beside(self, difference: Array, count: int, rng: np.random.Generator) -> Array:
        """(count, p) asking rows b for which b + difference is a token too."""

    def around(self, asker: Array, directions: Array, reach: float) -> Array:
        """One key near the asking row for each direction."""


@dataclass(frozen=True)
class SphereTokens:
    """Tokens of one norm, as a norm without gain passes them on."""

    width: int
    radius: float

    @property
    def reach(self) -> float:
        return self.radius

    def askers(self, count: int, rng: np.random.Generator) -> Array:
        return self.radius * unit_rows(rng.standard_normal((count, self.width)))

    def askers_beside(self, difference: Array, count: int, rng: np.random.Generator) -> Array:
        middle = -difference / 2.0
        across = rng.standard_normal((count, len(difference)))
        across -= np.outer(across @ difference, difference) / (difference @ difference)
        return np.asarray(middle + np.sqrt(self.radius**2 - middle @ middle) * unit_rows(across))

    def around(self, asker: Array, directions: Array, reach: float) -> Array:
        return self.radius * unit_rows(asker / self.radius + reach / self.radius * directions)


@dataclass(frozen=True)
class FreeTokens:
    """Tokens of any norm, with differences up to about this reach; asking rows are so many times as large.

    Scores grow with the asking row, what keys add does not: behind large asking rows small differences take
    heads apart, and a guess of the stream y from the asking row alone is a good one.
    """

    width: int
    reach: float
    asking: float = 1.0

    def askers(self, count: int, rng: np.random.Generator) -> Array:
        size = self.asking * self.reach / np.sqrt(self.width)
        return np.asarray(size * rng.standard_normal((count, self.width)))

    def askers_beside(self, difference: Array, count: int, rng: np.random.Generator) -> Array:
        return self.askers(count, rng)

    def around(self, asker: Array, directions: Array, reach: float) -> Array:
        return np.asarray(asker + reach * directions)
