"""Numbers in few digits: short float formats, how fine they are and where they end, and decimals."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from unsoftmax.arrays import EPS, Array

__all__ = ["FloatFormat", "decimals_of", "short_format", "smallest_format"]

_MOST_DECIMALS = 12  # float64 answers near one have 15: more decimals are not told from full precision


class FloatFormat(StrEnum):
    """A float format shorter than float64, from the coarsest to the finest.

    >>> FloatFormat("bfloat16").store(np.array([1.0 + 2.0**-9]))
    array([1.])
    >>> FloatFormat.FLOAT16.unit, FloatFormat.FLOAT16.next_after(1.0)
    (0.00048828125, 1.0009765625)
    """

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def mantissa_bits(self) -> int:
        """Binary digits after the leading one (IEEE 754; bfloat16: float32 cut to 16 bits)."""
        return {FloatFormat.BFLOAT16: 7, FloatFormat.FLOAT16: 10, FloatFormat.FLOAT32: 23}[self]

    @property
    def unit(self) -> float:
        """Largest relative error of rounding to nearest: half a unit in the last place."""
        return float(2.0 ** -(self.mantissa_bits + 1))

    @property
    def smallest(self) -> float:
        """Smallest positive number; what is below half of it becomes zero."""
        lowest = {FloatFormat.BFLOAT16: -133, FloatFormat.FLOAT16: -24, FloatFormat.FLOAT32: -149}
        return float(2.0 ** lowest[self])

    def store(self, values: Array) -> Array:
        """The nearest number of the format for every value, as float64; infinite beyond its range."""
        with np.errstate(over="ignore"):
            if self is FloatFormat.FLOAT16:
                return np.asarray(values, dtype=np.float16).astype(np.float64)
            single = np.asarray(values, dtype=np.float32)
        if self is FloatFormat.FLOAT32:
            return single.astype(np.float64)
        bits = np.atleast_1d(single).view(np.uint32).astype(np.uint64)
        nearest_even = bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
        rounded = (nearest_even & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32)
        return np.asarray(rounded.reshape(single.shape).astype(np.float64))

    def next_after(self, value: float) -> float:
        """The next larger number of the format after a positive normal one."""
        return float(value + 2.0 ** (np.floor(np.log2(value)) - self.mantissa_bits))


def short_format(name: str) -> FloatFormat | None:
    """The format of a name; None for any other datatype, such as float64.

    >>> short_format("float32"), short_format("float64")
    (<FloatFormat.FLOAT32: 'float32'>, None)
    """
    return FloatFormat(name) if name in list(FloatFormat) else None


def smallest_format(values: Array) -> FloatFormat | None:
    """The shortest format that holds every value, if float64 is not needed.

    >>> smallest_format(np.array([0.5, 3.0])), smallest_format(np.array([0.1]))
    (<FloatFormat.BFLOAT16: 'bfloat16'>, None)
    """
    return next((each for each in FloatFormat if bool((each.store(values) == values).all())), None)


def decimals_of(answers: Array) -> int | None:
    """The smallest number of decimals that writes every answer, if there is one.

    >>> decimals_of(np.array([0.25, 3.0])), decimals_of(np.array([1.0 / 3.0]))
    (2, None)
    """
    for places in range(_MOST_DECIMALS + 1):
        scaled = answers * 10.0**places
        if (np.abs(scaled - np.round(scaled)) <= 4.0 * EPS * np.maximum(1.0, np.abs(scaled))).all():
            return places if np.abs(scaled).max() < 0.01 / EPS else None
    return None
