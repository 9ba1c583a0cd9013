"""Does a function bend smoothly, or only at kinks? Second differences over a step and over twice the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["PLACES", "Bends", "bends"]

PLACES, _MOST = 6, 4  # places, and how many of them must bend smoothly: at an inflection the two disagree
_OFFSETS = np.arange(-2.0, 3.0)  # steps beside a place: two second differences, of one and of two steps
# of the wider difference: a smooth function has four times the narrow one to within a few hundredths, a kink
# anywhere between one and three times
_FOURFOLD = 0.1
# limits of noise: around a kink in the middle the two differ by the whole bend, which is more than 0.1 of it
# and 5 limits from 5.6 limits on; a kink within 20 looks smooth in one of six places
_SEEN, _CLEAR = 6.0, 20.0
_OFTEN = 0.8  # of the places that bend clearly: the others are near an inflection


@dataclass(frozen=True)
class Bends:
    """clear, clear_smooth: at how many places a function bends clearly, and at how many of these smoothly;
    looks at several sizes add up. smooth: at how many of six it bends smoothly, faint bends included.
    """

    smooth: int
    clear: int
    clear_smooth: int

    def __add__(self, other: Bends) -> Bends:
        return Bends(
            max(self.smooth, other.smooth), self.clear + other.clear, self.clear_smooth + other.clear_smooth
        )

    @property
    def smoothly(self) -> bool:
        """Whether the function bends as only smooth ones do."""
        pooled = self.clear >= _MOST and self.clear_smooth >= _OFTEN * self.clear
        return pooled or self.smooth >= _MOST


def bends(
    ask: Callable[[Array], Array], places: Array, step: float, noise: Callable[[Array], float]
) -> Bends:
    """How f bends around six places (6, d): piecewise linear functions are straight at some, or have kinks.

    ask: rows (B, d) -> (B,) or (B, m). step: of a place's size. noise: of a second difference, from the
    answers. 30 queries.

    >>> places = np.random.default_rng(0).standard_normal((6, 3))
    >>> bends(lambda x: np.tanh(x.sum(axis=1)), places, 0.01, lambda y: 1e-14).smoothly
    True
    >>> bends(lambda x: np.abs(x).sum(axis=1), places, 0.01, lambda y: 1e-14).smoothly
    False
    """
    # steps along other places, of their size: random, and the same wherever this is asked
    steps = step * np.roll(places, 1, axis=0)
    rows = places[:, None] + _OFFSETS[:, None] * steps[:, None]
    flat = ask(rows.reshape(-1, places.shape[1]))
    answers = flat.reshape(len(places), len(_OFFSETS), -1)
    narrow = answers[:, 1] - 2.0 * answers[:, 2] + answers[:, 3]
    wide = answers[:, 0] - 2.0 * answers[:, 2] + answers[:, 4]
    size, off = np.abs(wide).max(axis=1), np.abs(wide - 4.0 * narrow).max(axis=1)
    limit = noise(flat)
    fourfold = off <= _FOURFOLD * size + 5.0 * limit
    clear = size > _CLEAR * limit
    return Bends(
        int(np.sum(fourfold & (size > _SEEN * limit))), int(clear.sum()), int(np.sum(fourfold & clear))
    )
