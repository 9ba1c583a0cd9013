"""Whether a layer rounds at every step or only its answer, from single rows on lines.

A single row gets an affine answer, so three rows x − u, x, x + u get answers whose second difference is zero.
Answers that are computed in float64 and stored short miss it by less than their last digits. Where every step
rounds, answers that nearly cancel miss it by many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, longest_rows, rms
from unsoftmax.float_formats import FloatFormat, smallest_format

__all__ = ["MOST_UNITS", "Arithmetic", "arithmetic_rows", "judge_arithmetic", "judge_nearby", "nearby_rows"]

_LINES = 10  # 20 second differences in all: their mean square is known to a third
# rounding of what is computed grows with the rows, that of the last step alone with the answer
_SIZES = (1.0, 64.0)
# rounding grows with the rows, by up to 64 here (a constant holds it back); errors of one size, such as a
# tolerance, do not grow
_GROWTH = 4.0
# mean square of second differences over what one rounding of every answer gives: 1 ± 0.25 for stored answers
# (20 lines)
_ONE_ROUNDING = 2.0
# units of the format: layers of width 8 to 384 were off by 2 to 10, and what is off by far more bends
MOST_UNITS = 40.0
# steps between rows nearby: float32 holds 1/8 and 2^-19 side by side, and what a function of size one bends
# by over seven of them in every column, d·49·2^-38, is below its rounding 2^-24 up to d = 300. With 2^-16
# one stored function in six was taken for a computed one; from 2^-18 on none of 60
_NEARBY = 2.0**-19
_PLACES = 20  # rows around which second differences are taken
_KINKS = 0.9  # of second differences that count: the others may hold a kink


@dataclass(frozen=True)
class Arithmetic:
    """What the answers to `arithmetic_rows` show.

    stored: the shortest format that holds every answer (None: float64). format: that of every step inside;
    None where only the answer rounds, or nothing does. noise: rounding of an answer relative to the usual
    size of answers.
    """

    stored: FloatFormat | None
    format: FloatFormat | None
    noise: float

    @property
    def computed(self) -> bool:
        """Every step rounds, not only the answer."""
        return self.format is not None

    @property
    def bends(self) -> bool:
        """Single rows are so far off lines that no rounding of a float32 layer explains it."""
        return self.stored is FloatFormat.FLOAT32 and self.noise >= MOST_UNITS * self.stored.unit

    @property
    def sentence(self) -> str:
        """For people."""
        if self.format is None:
            return f"answers are {self.stored or 'float64'} numbers, and exact but for that"
        return f"every step inside rounds to {self.format}: answers are off by {self.noise:.1g} relative"


def arithmetic_rows(width: int, rng: np.random.Generator, longest: float = np.inf) -> Array:
    """(n, 1, width): single rows on lines, x − u, x, x + u each. Entries are small multiples of 1/8, which
    every format holds.
    """
    middle, step = rng.integers(-7, 8, (2, len(_SIZES), _LINES, 1, width)) / 8.0
    lines = np.concatenate([middle - step, middle, middle + step], axis=2)
    rows = (lines * np.reshape(_SIZES, (-1, 1, 1, 1))).reshape(-1, 1, width)
    beyond = float(longest_rows(rows).max()) / longest
    return np.asarray(rows * 2.0 ** -np.ceil(np.log2(beyond)) if beyond > 1.0 else rows)


def judge_arithmetic(answers: Array) -> Arithmetic:
    """answers: (n,) or (n, m), to `arithmetic_rows`.

    >>> rows = arithmetic_rows(40, np.random.default_rng(0))
    >>> v = np.random.default_rng(1).standard_normal(40)
    >>> judge_arithmetic(rows[:, 0] @ v).computed
    False
    >>> judge_arithmetic(np.float32(rows[:, 0] @ v).astype(float)).computed
    False
    >>> short = np.zeros(len(rows), dtype=np.float32)
    >>> for x, weight in zip(np.float32(rows[:, 0]).T, np.float32(v)):
    ...     short += x * weight
    >>> judge_arithmetic(short.astype(float)).computed
    True
    """
    values = np.asarray(answers, dtype=np.float64).reshape(len(_SIZES), _LINES, 3, -1)
    stored = smallest_format(values)
    seconds = values[:, :, 0] - 2.0 * values[:, :, 1] + values[:, :, 2]
    unit = stored.unit if stored is not None else 2.0**-53
    smallest = stored.smallest if stored is not None else 0.0
    last_digits = (
        unit * (np.abs(values[:, :, 0]) + 2.0 * np.abs(values[:, :, 1]) + np.abs(values[:, :, 2]))
        + 4.0 * smallest
    )
    sizes = np.array([rms(part) for part in values])
    # a second difference holds four units of variance of the middle answer and one of each end
    noises = np.array([rms(part) / np.sqrt(6.0) for part in seconds])
    noise = float(noises[-1] / sizes[-1]) if sizes[-1] > 0 else 0.0
    beyond = bool((np.abs(seconds) > 1.01 * last_digits).any())
    beyond = beyond or _more_than_one_rounding(values, seconds, unit)
    grows = bool(noises[-1] > _GROWTH * noises[0])
    inside = stored or FloatFormat.FLOAT32  # answers that are float64 numbers: read out of a float32 layer
    usual = inside.unit / 8.0 < noise < MOST_UNITS * inside.unit
    computed = beyond and grows and usual
    return Arithmetic(stored, inside if computed else None, max(noise, unit))


def _more_than_one_rounding(values: Array, seconds: Array, unit: float) -> bool:
    """Whether second differences are larger on average than one rounding of every answer makes them."""
    least = 1e-140  # its square is still a float64
    steps = 2.0 * unit * 2.0 ** np.floor(np.log2(np.maximum(np.abs(values), least)))
    expected = (steps[:, :, 0] ** 2 + 4.0 * steps[:, :, 1] ** 2 + steps[:, :, 2] ** 2) / 12.0
    return float(np.mean(seconds**2 / expected)) > _ONE_ROUNDING


def nearby_rows(width: int, rng: np.random.Generator, longest: float = np.inf) -> Array:
    """(n, 1, width): single rows x − u, x, x + u so near each other that a function that bends is straight
    between them, up to its rounding."""
    middle = rng.integers(-7, 8, (_PLACES, 1, width)) / 8.0
    step = _NEARBY * rng.integers(-7, 8, (_PLACES, 1, width))
    rows = np.concatenate([middle - step, middle, middle + step], axis=1).reshape(-1, 1, width)
    beyond = float(np.linalg.norm(rows, axis=2).max()) / longest
    return np.asarray(rows * 2.0 ** -np.ceil(np.log2(beyond)) if beyond > 1.0 else rows)


def judge_nearby(answers: Array, cancelled: float = 0.0) -> Arithmetic:
    """answers: (n,) or (n, m), to `nearby_rows`. Whether every step of a function that bends, or whose parts
    cancel, rounds to float32. cancelled: how far off answers may be where parts cancel; else rounding is
    relative to the answers.

    >>> rng = np.random.default_rng(0)
    >>> rows, A, v = nearby_rows(8, rng), rng.standard_normal((8, 16)), rng.standard_normal(16)
    >>> stored = np.float32(np.tanh(rows[:, 0] @ A) @ v).astype(float)
    >>> short = (np.tanh(np.float32(rows[:, 0]) @ np.float32(A)) @ np.float32(v)).astype(float)
    >>> judge_nearby(stored).computed, judge_nearby(short).computed
    (False, True)
    """
    values = np.asarray(answers, dtype=np.float64).reshape(_PLACES, 3, -1)
    stored = smallest_format(values)
    if stored is not FloatFormat.FLOAT32:
        return Arithmetic(stored, None, 2.0**-53)
    unit = stored.unit
    seconds = values[:, 0] - 2.0 * values[:, 1] + values[:, 2]
    steps = 2.0 * unit * 2.0 ** np.floor(np.log2(np.maximum(np.abs(values), 1e-100)))
    expected = (steps[:, 0] ** 2 + 4.0 * steps[:, 1] ** 2 + steps[:, 2] ** 2) / 12.0
    told = np.abs(values).max(axis=(1, 2)) > 0.0  # zeros do not round
    if not told.any():
        return Arithmetic(stored, None, unit)
    ratios = np.sort((seconds**2 / expected).mean(axis=1)[told])[: max(1, int(_KINKS * told.sum()))]
    sizes = np.sort((seconds**2).mean(axis=1))[: int(_KINKS * _PLACES)]
    off, size = float(np.sqrt(sizes.mean() / 6.0)), max(rms(values), 1e-300)
    computed = float(ratios.mean()) > _ONE_ROUNDING and off < max(MOST_UNITS * unit * size, cancelled)
    return Arithmetic(stored, stored if computed else None, max(off / size, unit))
