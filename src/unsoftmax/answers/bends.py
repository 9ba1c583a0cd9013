"""Does a function bend smoothly, or only at kinks? Second differences over a step and over twice the step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["PLACES", "bends_smoothly"]

PLACES, _MOST = 6, 4  # places, and how many of them must bend smoothly: at an inflection the two disagree
_OFFSETS = np.arange(-2.0, 3.0)
# of the wider difference: a smooth function has four times the narrow one to within a few hundredths, a kink
# anywhere between one and three times
_FOURFOLD = 0.1


def bends_smoothly(
    ask: Callable[[Array], Array], places: Array, step: float, noise: Callable[[Array], float]
) -> bool:
    """Whether f bends at most of six places (6, d) as only smooth functions do; piecewise linear ones
    are straight at some, or have kinks.

    ask: rows (B, d) -> (B,) or (B, m). step: of a place's size. noise: of a second difference, from the
    answers. 30 queries.

    >>> rng = np.random.default_rng(0)
    >>> places = rng.standard_normal((6, 3))
    >>> bends_smoothly(lambda x: np.tanh(x.sum(axis=1)), places, 0.01, lambda y: 1e-14)
    True
    >>> bends_smoothly(lambda x: np.abs(x).sum(axis=1), places, 0.01, lambda y: 1e-14)
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
    smooth = (size > 4.0 * limit) & (off <= _FOURFOLD * size + 5.0 * limit)
    return int(smooth.sum()) >= min(_MOST, len(places))
