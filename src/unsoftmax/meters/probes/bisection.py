"""Where does a yes/no answer turn? One bit per query when answers are true, Bayes where some are flipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["Above", "Bisection", "Locator", "ProbabilisticBisection", "halve"]

Above = Callable[[Array, NDArray[np.intp]], NDArray[np.bool_]]
"""above(points, which): for each problem in `which`, whether its hidden number lies above the point."""

_MOST = 500  # queries a number: 94 bits where a quarter of the answers is wrong
_BLOCK = 2048  # numbers at a time: their beliefs take 8 MB at most


def halve(
    beyond: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array, steps: int
) -> tuple[Array, Array]:
    """Intervals in which `beyond` turns from False to True, halved `steps` times, all of them together.

    A rounding threshold is such a turn, too: it is an exact comparison, so answers of any precision tell a
    number to float64.

    >>> low, high = halve(lambda x: x > 0.3, np.zeros(1), np.ones(1), 20)
    >>> bool(low[0] <= 0.3 <= high[0])
    True
    """
    for _ in range(steps):
        middle = (low + high) / 2
        up = beyond(middle)
        high, low = np.where(up, middle, high), np.where(up, low, middle)
    return low, high


class Locator(Protocol):
    """Finds n hidden numbers between -reach and reach, together."""

    @property
    def bits(self) -> int:
        """How many halvings of the reach."""

    def locate(self, above: Above, n: int, reach: float, bits: int | None = None) -> tuple[Array, Array]:
        """The numbers to so many bits (None: its own number), and how far off each can be."""


@dataclass(frozen=True)
class Bisection:
    """Halves every interval `bits` times.

    >>> values, widths = Bisection(20).locate(lambda x, i: x < 0.3, 1, 1.0)
    >>> bool(abs(values[0] - 0.3) <= widths[0] < 1e-5)
    True
    """

    bits: int

    def locate(self, above: Above, n: int, reach: float, bits: int | None = None) -> tuple[Array, Array]:
        everyone = np.arange(n)
        low, high = halve(
            lambda points: ~above(points, everyone),
            np.full(n, -reach),
            np.full(n, reach),
            self.bits if bits is None else bits,
        )
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class ProbabilisticBisection:
    """Asks at the median of what is believed, and stops when all but `doubt` of the belief is within 2^-bits
    of the reach.

    A fixed number of queries would leave some numbers far off; a number that needs more gets more. flip: how
    often an answer is wrong.

    >>> rng = np.random.default_rng(0)
    >>> values, _ = ProbabilisticBisection(16, 0.1).locate(lambda x, i: (x < 0.3) ^ (rng.random(len(x))
    ...     < 0.1), 5, 1.0)
    >>> bool(np.abs(values - 0.3).max() < 1e-4)
    True
    """

    bits: int
    flip: float
    doubt: float = 1e-4

    def locate(self, above: Above, n: int, reach: float, bits: int | None = None) -> tuple[Array, Array]:
        finest = reach * 2.0 ** -(self.bits if bits is None else bits)
        values, widths = np.zeros(n), np.full(n, reach)
        for start in range(0, n, _BLOCK):
            block = np.arange(start, min(start + _BLOCK, n))
            values[block], widths[block] = self._block(above, block, reach, finest)
        return values, widths

    def _block(
        self, above: Above, block: NDArray[np.intp], reach: float, finest: float
    ) -> tuple[Array, Array]:
        n = len(block)
        values, widths = np.zeros(n), np.full(n, reach)
        asked = np.arange(n)
        edges = np.tile([-reach, reach], (n, 1))
        belief = np.zeros((n, 1))  # logarithm of the density between neighbouring edges
        right, wrong = np.log(2.0 * (1.0 - self.flip)), np.log(2.0 * self.flip)
        for _ in range(_MOST):
            rows = np.arange(len(asked))
            mass = np.cumsum(
                np.exp(belief - belief.max(axis=1, keepdims=True)) * np.diff(edges, axis=1), axis=1
            )
            mass /= mass[:, -1:]
            where = np.minimum((mass < 0.5).sum(axis=1), belief.shape[1] - 1)
            before = np.where(where > 0, mass[rows, np.maximum(where - 1, 0)], 0.0)
            part = (0.5 - before) / np.maximum(mass[rows, where] - before, 1e-300)
            middle = edges[rows, where] + part * (edges[rows, where + 1] - edges[rows, where])
            lowest = edges[rows, (mass < self.doubt / 2).sum(axis=1)]
            highest = edges[
                rows, np.minimum((mass < 1.0 - self.doubt / 2).sum(axis=1), belief.shape[1] - 1) + 1
            ]
            width = np.maximum(highest - middle, middle - lowest)
            values[asked], widths[asked] = middle, width
            open_ = width > finest
            if not open_.any():
                break
            asked, edges, belief, middle, where = (
                asked[open_],
                edges[open_],
                belief[open_],
                middle[open_],
                where[open_],
            )
            up = above(middle, block[asked])
            edges, belief = _split(edges, belief, middle, where)
            is_right = np.arange(belief.shape[1])[None] > where[:, None]
            belief = belief + np.where(is_right == up[:, None], right, wrong)
        return values, widths


def _split(edges: Array, belief: Array, at: Array, where: NDArray[np.intp]) -> tuple[Array, Array]:
    """Every row's interval `where` cut in two at `at`, with the same density on both sides."""
    rows = np.arange(len(edges))[:, None]
    new_edges, new_pieces = np.arange(edges.shape[1] + 1)[None], np.arange(belief.shape[1] + 1)[None]
    k = where[:, None]
    moved = edges[
        rows,
        np.where(new_edges <= k, np.minimum(new_edges, edges.shape[1] - 1), np.maximum(new_edges - 1, 0)),
    ]
    moved = np.where(new_edges == k + 1, at[:, None], moved)
    pieces = belief[
        rows,
        np.where(new_pieces <= k, np.minimum(new_pieces, belief.shape[1] - 1), np.maximum(new_pieces - 1, 0)),
    ]
    return moved, pieces
