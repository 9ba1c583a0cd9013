"""v from answers stored as short floats, in float64: its direction through zeros, its length where answers
step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.one_head.checks import ONE_ROW_TEST
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.probes.bisection import halve
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["ShortReadout", "read_short_floats"]

_ANSWERS = 2.0**12  # answers of about this size stay clear of float16's limits, and of its smallest steps
_TRIES = 30  # sizes grow by 2^20 at most: any finite v shows
_ROWS = 16  # their errors all lie within a sixth of the usual once in 10^12 times
_FACTOR = 6.0  # see `_ROWS`
_WRONG = 0.02  # of a typical answer: more than the rounding inside a target explains


@dataclass(frozen=True)
class ShortReadout:
    """v, the relative error of its length, and the size of rows at which answers are clear of the format's
    limits."""

    v: Array
    length_error: float
    size: float
    format: FloatFormat

    def error(self, asker: Asker, rng: np.random.Generator) -> float:
        """How wrong v can be, relative, from fresh rows across it and in random directions."""
        d, length = asker.width, float(np.linalg.norm(self.v))
        with asker.phase(VERIFICATION):
            across = rng.standard_normal((_ROWS, d))
            across -= np.outer(across @ self.v, self.v) / length**2
            of_direction = 0.0
            if d > 1:
                across *= self.size / np.linalg.norm(across, axis=1)[:, None]
                answers = (np.abs(asker.ask(across[:, None])) + self.format.smallest / 2) / self.size
                of_direction = _FACTOR * float(np.sqrt(np.mean(answers**2))) * np.sqrt(d) / length
            rows = rng.standard_normal((_ROWS, d))
            rows *= self.size / np.linalg.norm(rows, axis=1)[:, None]
            rounding = self.format.unit * np.abs(rows @ self.v) * (1 + 1e-9)
            excess = np.abs(asker.ask(rows[:, None]) - rows @ self.v) - rounding
        wrong = float(excess.max()) / (self.size * length / np.sqrt(d))
        if wrong > _WRONG:
            raise OutsideClass(
                ONE_ROW_TEST,
                f"fresh rows are answered up to {float(excess.max()):.3g} away from x·v beyond their "
                "rounding",
            )
        return float(of_direction + (0.0 if wrong <= 64 * EPS * d else self.format.unit + wrong))


def read_short_floats(asker: Asker, stored: FloatFormat, passes: int) -> ShortReadout:
    """v, with as many passes over the zeros as the format takes."""
    with asker.phase("values"):
        direction, size = _direction(asker, passes)
        length, error = _length(asker, direction, size, stored)
    return ShortReadout(length * direction, error, size, stored)


def _direction(asker: Asker, passes: int) -> tuple[Array, float]:
    """v/|v| by ratios to the largest entry, and a size of rows at which answers are clear of the limits."""
    d = asker.width
    bound = np.inf if asker.input_bound is None else asker.input_bound / 2
    size = float(min(1.0, bound))
    if abs(float(asker.ask(np.zeros((1, 1, d)))[0])) > 0.0:
        raise OutsideClass(
            Test("a row of zeros is answered zero"),
            "a constant is only recovered from exact answers or within a tolerance",
        )
    for _ in range(_TRIES):
        answers = asker.ask(size * np.eye(d)[:, None])
        largest = float(np.abs(answers).max())
        if 2.0**-6 <= largest <= 2.0**14 or (largest < 1.0 and size >= bound):
            break
        size = float(min(size * (2.0**20 if largest == 0.0 else _ANSWERS / largest), bound))
    if largest == 0.0:
        raise Unresolved(f"no row of norm {size:.2g} moves the answer; longer rows are needed, or v = 0")
    pivot = int(np.abs(answers).argmax())
    slope = float(answers[pivot]) / size
    size = float(min(_ANSWERS / abs(slope), bound))
    ratios = answers / answers[pivot]
    others = np.flatnonzero(np.arange(d) != pivot)
    for _ in range(passes):
        rows = size * np.eye(d)[others]
        rows[:, pivot] = -size * ratios[others]
        longest = np.maximum(1.0, np.linalg.norm(rows, axis=1) / (2 * bound))
        ratios[others] += asker.ask((rows / longest[:, None])[:, None]) * longest / (size * slope)
    v = np.sign(slope) * ratios
    return np.asarray(v / np.linalg.norm(v)), size


def _length(asker: Asker, direction: Array, size: float, stored: FloatFormat) -> tuple[float, float]:
    """|v| and its relative error, from two rounding thresholds: the rows at which the stored answer steps to
    the next number."""
    answer = float(asker.ask((size * direction)[None, None])[0])
    if not answer > 0.0:
        raise OutsideClass(
            ONE_ROW_TEST,
            f"a row along v, which single entries told, is answered {answer:.3g} instead of its length times "
            "|v|",
        )
    binade = 2.0 ** np.floor(np.log2(answer))
    # clear of the powers of two, where steps change
    size *= (1.5 if answer >= 1.5 * binade else 0.75) * binade / answer
    first = float(asker.ask((size * direction)[None, None])[0])
    second = stored.next_after(first)
    third = stored.next_after(second)
    crossings = [
        _crossing(
            asker, direction, size * (lower + upper) / 2 / first, lower, upper, 54 - stored.mantissa_bits
        )
        for lower, upper in ((first, second), (second, third))
    ]
    apart = abs((first + second) / crossings[0] / ((second + third) / crossings[1]) - 1.0)
    # a value that is rounded to float32 on the way moves neighbouring thresholds by the same step in opposite
    # directions
    length = float((first + 2.0 * second + third) / 2.0 / sum(crossings))
    return length, 0.0 if apart <= 2.0**-22 else apart


def _crossing(asker: Asker, direction: Array, middle: float, lower: float, upper: float, steps: int) -> float:
    """The length of a row along v at which the stored answer steps from `lower` to `upper`."""
    reach = np.array([1.5 * (upper - lower) / lower * middle])

    def above(moved: Array) -> NDArray[np.bool_]:
        return np.asarray(asker.ask(((middle + moved)[:, None] * direction)[:, None]) >= upper)

    low, high = halve(above, -reach, reach, steps)
    return float(middle + (low[0] + high[0]) / 2)
