"""A rounding threshold is an exact comparison: bisecting on it reads a number to float64 from answers of any
precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.oracles import Array

__all__ = ["MANTISSA_BITS", "SMALLEST", "bisect_up", "next_in_precision"]

MANTISSA_BITS = {"float32": 23, "float16": 10, "bfloat16": 7}
SMALLEST = {
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}  # positive number of a format; answers below half of it are zero


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


def next_in_precision(value: float, precision: str) -> float:
    """The next larger number of a float format after a positive normal one.

    >>> next_in_precision(1.0, "bfloat16")
    1.0078125
    """
    return float(value + 2.0 ** (np.floor(np.log2(value)) - MANTISSA_BITS[precision]))
