"""A rounding threshold is an exact comparison: bisecting on it reads a number to float64 from answers of any
precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["bisect_up"]


def bisect_up(
    above: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array, steps: int
) -> tuple[Array, Array]:
    """Intervals in which `above` turns from False to True, halved `steps` times, all of them together.

    >>> low, high = bisect_up(lambda x: x > 0.3, np.zeros(1), np.ones(1), 20)
    >>> bool(low[0] <= 0.3 <= high[0])
    True
    """
    for _ in range(steps):
        middle = (low + high) / 2
        up = above(middle)
        high, low = np.where(up, middle, high), np.where(up, low, middle)
    return low, high
