"""What a target does to the function's value before it answers: one type per kind, each with its own ruler.

The ruler says how far an answer may be from the value that the function has, and how often to ask.
Certificates and judges take it from here and never from a learner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat

__all__ = [
    "NO_LIMITS",
    "Answers",
    "Clipped",
    "Computed",
    "Constant",
    "Exact",
    "Labels",
    "Noisy",
    "Rounded",
    "Stored",
    "Unsteady",
    "Within",
    "limits_in_words",
    "votes_needed",
]

NO_LIMITS = (-float(np.finfo(float).max), float(np.finfo(float).max))
Deviation = Callable[[Array, Array], Array]

_ROUNDED_UP = 1.0 + 1e-9  # a half that is rounded may be off by its own float64 rounding
_STORED_UP = 1.0 + 1e-6  # the value itself is known to a few ulps only
# roots of the mean square: rounding is bounded, but rows of a long sequence may round alike
_LARGEST_ROUNDING = 16.0
_CERTAIN = 6.0  # standard deviations: a Gaussian error beyond happens once in 5e8 answers
_FLIP_MARGIN = 0.015  # an underestimated flip rate would make majorities too sure of themselves
_SURE = 1e-6  # chance that a majority of repeated labels is wrong


@dataclass(frozen=True)
class _Kind:
    """What all kinds share; each overrides what it changes, and has a `name` for people and for JSON."""

    exact: ClassVar[bool] = False

    @property
    def tolerance(self) -> float:
        """How far an answer may be from the value, whatever the value; what depends on it is
        `deviation`'s."""
        return 0.0

    @property
    def deviation(self) -> Deviation | None:
        """How far answers are from what values should have become, as a function of both; None for |a -
        v|."""
        return None

    @property
    def repeats(self) -> int:
        """How often to ask, taking the median."""
        return 1

    @property
    def limits(self) -> tuple[float, float] | None:
        """Lowest and highest answer, where answers stop there."""
        return None

    @property
    def longest_row(self) -> float:
        """Norm of rows up to which the answers' errors are of this kind."""
        return float("inf")

    @property
    def rounding(self) -> float:
        """How far an answer may be off by steps that round, relative to what its sequence could show at
        most."""
        return 0.0


@dataclass(frozen=True)
class Exact(_Kind):
    """Answers are the function's values, to float64."""

    exact: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "exact"


@dataclass(frozen=True)
class Constant(_Kind):
    """No row moves the answer."""

    exact: ClassVar[bool] = True
    value: float = 0.0

    @property
    def name(self) -> str:
        return "constant"


@dataclass(frozen=True)
class Rounded(_Kind):
    """Answers are rounded to `decimals` places.

    >>> Rounded(2).name, Rounded(2).step
    ('decimals', 0.01)
    """

    decimals: int

    @property
    def name(self) -> str:
        return "decimals"

    @property
    def step(self) -> float:
        """Distance of neighbouring answers."""
        return float(10.0**-self.decimals)

    @property
    def tolerance(self) -> float:
        return self.step / 2 * _ROUNDED_UP


@dataclass(frozen=True)
class Stored(_Kind):
    """The function is computed in float64, and its value is stored in a short format.

    >>> Stored(FloatFormat.FLOAT32).name
    'float32'
    """

    format: FloatFormat

    @property
    def name(self) -> str:
        return str(self.format)

    @property
    def deviation(self) -> Deviation | None:
        return lambda answers, values: np.maximum(np.abs(answers - values) - self.off(values), 0.0)

    def off(self, values: Array) -> Array:
        """How far a stored number can be from the value."""
        return np.asarray(self.format.unit * np.abs(values) * _STORED_UP + self.format.smallest)


@dataclass(frozen=True)
class Computed(_Kind):
    """Every step inside the target is computed in a short format, as real models do.

    noise: measured root mean square of an answer's error, relative to the answers.

    >>> Computed(FloatFormat.FLOAT32, 3e-7).name
    'computed in float32'
    """

    format: FloatFormat
    noise: float

    @property
    def name(self) -> str:
        return f"computed in {self.format}"

    @property
    def rounding(self) -> float:
        return _LARGEST_ROUNDING * self.noise

    @property
    def deviation(self) -> Deviation | None:
        """Rounding of the answer itself is not a deviation; that of the steps before it is `rounding`."""
        return lambda answers, values: np.maximum(
            np.abs(answers - values) - self.rounding * np.abs(values), 0.0
        )


@dataclass(frozen=True)
class Within(_Kind):
    """Answers repeat, and are off by up to `tau`."""

    tau: float

    @property
    def name(self) -> str:
        return "tolerance"

    @property
    def tolerance(self) -> float:
        return self.tau


@dataclass(frozen=True)
class Noisy(_Kind):
    """Every answer carries a fresh error of standard deviation `sigma`.

    rounded_beyond: norm of rows from which on answers, being numbers of a short format, are rounded by more.
    """

    sigma: float
    rounded_beyond: float = float("inf")

    @property
    def name(self) -> str:
        return "noise"

    @property
    def tolerance(self) -> float:
        return _CERTAIN * self.sigma

    @property
    def longest_row(self) -> float:
        return self.rounded_beyond


@dataclass(frozen=True)
class Labels(_Kind):
    """Answers say only on which side of zero the value lies; each is wrong with probability `flip`.

    middle: a number between the two labels.

    >>> Labels().deviation(np.array([0.0, 1.0]), np.array([-2.0, -3.0]))
    array([0., 3.])
    """

    flip: float = 0.0
    middle: float = 0.5

    @property
    def name(self) -> str:
        return "flipped labels" if self.flip else "labels"

    @property
    def deviation(self) -> Deviation | None:
        """A wrong label means that the value is off by at least its size."""

        def beyond(answers: Array, values: Array) -> Array:
            return np.where((answers > self.middle) == (values > 0.0), 0.0, np.abs(values))

        return beyond

    @property
    def repeats(self) -> int:
        return votes_needed(self.most_flipped) if self.flip else 1

    @property
    def most_flipped(self) -> float:
        """The measured rate of flips with a margin; 0 where labels are true."""
        return self.flip + _FLIP_MARGIN if self.flip else 0.0


@dataclass(frozen=True)
class Clipped(_Kind):
    """Answers stop at `bounds` (the largest float on a side without a limit); between them they are `inner`.

    >>> Clipped((-2.0, 2.0)).name, Clipped((-2.0, 2.0), Rounded(1)).name
    ('clipped', 'clipped decimals')
    """

    bounds: tuple[float, float]
    inner: Answers = Exact()

    @property
    def name(self) -> str:
        return "clipped" if self.inner.exact else f"clipped {self.inner.name}"

    @property
    def tolerance(self) -> float:
        return self.inner.tolerance

    @property
    def deviation(self) -> Deviation | None:
        return self.inner.deviation

    @property
    def repeats(self) -> int:
        return self.inner.repeats

    @property
    def limits(self) -> tuple[float, float] | None:
        return self.bounds

    @property
    def longest_row(self) -> float:
        return self.inner.longest_row


@dataclass(frozen=True)
class Unsteady(_Kind):
    """The same row is answered differently as time goes on, which no noise does: no function at all."""

    @property
    def name(self) -> str:
        return "unsteady"


Answers = Exact | Constant | Rounded | Stored | Computed | Within | Noisy | Labels | Clipped | Unsteady


def votes_needed(flip: float) -> int:
    """An odd number of repeats whose majority is hardly ever wrong.

    >>> votes_needed(0.0), votes_needed(0.05)
    (1, 15)
    """
    from scipy.stats import binom

    votes = 1
    while flip > 0.0 and float(binom.sf(votes // 2, votes, flip)) > _SURE:
        votes += 2
    return votes


def limits_in_words(limits: tuple[float, float]) -> str:
    """Where answers stop; a side without a limit is not mentioned.

    >>> limits_in_words((-2.0, 2.0)), limits_in_words((NO_LIMITS[0], 2.0))
    ('answers stop at -2 and 2', 'answers stop at 2')
    """
    return "answers stop at " + " and ".join(f"{limit:.6g}" for limit in limits if limit not in NO_LIMITS)
