"""Whether a layer rounds at every step or only its answer, from single rows on lines.

A single row gets an affine answer, so three rows x − u, x, x + u get answers whose second difference is zero.
Answers that are computed in float64 and stored short miss it by less than their last digits. Where every step
rounds, answers that nearly cancel miss it by many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat, smallest_format

__all__ = ["Arithmetic", "arithmetic_rows", "judge_arithmetic"]

_LINES = 12
_SIZES = (1.0, 16.0)
_FLOAT64 = 2e-13  # relative noise below it is that of float64 sums
_GROWTH = (
    4.0  # rounding grows with the rows, by 16 here; errors of one size, such as a tolerance, do not grow
)
# mean square of second differences over what one rounding of every answer gives: 1 ± 0.25 for stored answers
# (24 lines)
_ONE_ROUNDING = 2.2
_COARSEST = 0.05  # relative noise above it is no arithmetic


@dataclass(frozen=True)
class Arithmetic:
    """What the answers to `arithmetic_rows` show.

    format: the shortest that holds every answer (None: float64). computed: every step rounds, not only the
    answer. noise: rounding of an answer relative to the usual size of answers.
    """

    format: FloatFormat | None
    computed: bool
    noise: float

    @property
    def bits(self) -> int:
        """Significant bits of the layer's numbers: from the answers, or where those are float64 numbers, from
        their noise.
        """
        if self.format is not None:
            return self.format.mantissa_bits + 1
        # a sum of a few ten products is off by about four units of its format
        return int(np.clip(np.floor(-np.log2(max(self.noise, 1e-16))) + 1, 8, 53)) if self.computed else 53

    @property
    def sentence(self) -> str:
        """For people."""
        name = self.format.value if self.format is not None else "float64"
        if not self.computed:
            return f"answers are {name} numbers, and exact but for that"
        inside = name if self.format is not None else f"about {self.bits}-bit"
        return f"the target computes in {inside} arithmetic: answers are off by {self.noise:.1g} relative"


def arithmetic_rows(width: int, rng: np.random.Generator) -> Array:
    """(n, 1, width): single rows on lines, x − u, x, x + u each. Entries are small multiples of 1/8, which
    every format holds.
    """
    middle, step = rng.integers(-7, 8, (2, len(_SIZES), _LINES, 1, width)) / 8.0
    lines = np.concatenate([middle - step, middle, middle + step], axis=2)
    return np.asarray((lines * np.reshape(_SIZES, (-1, 1, 1, 1))).reshape(-1, 1, width))


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
    beyond = bool((np.abs(seconds) > 1.01 * last_digits).any()) or _more_than_one_rounding(
        values, seconds, unit
    )
    grows = bool(noises[-1] > _GROWTH * noises[0])
    computed = beyond and grows and _FLOAT64 < noise < _COARSEST
    return Arithmetic(stored, computed, max(noise, unit if stored is not None else noise))


def _more_than_one_rounding(values: Array, seconds: Array, unit: float) -> bool:
    """Whether second differences are larger on average than one rounding of every answer makes them."""
    steps = 2.0 * unit * 2.0 ** np.floor(np.log2(np.maximum(np.abs(values), 1e-300)))
    expected = (steps[:, :, 0] ** 2 + 4.0 * steps[:, :, 1] ** 2 + steps[:, :, 2] ** 2) / 12.0
    return float(np.mean(seconds**2 / expected)) > _ONE_ROUNDING
