"""How often a fit is tried, and when its result is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.outcomes import Unresolved

__all__ = [
    "ATTEMPTS",
    "COARSE_ATTEMPTS",
    "FLOAT16_BITS",
    "NotBelieved",
    "first_believed",
    "is_coarse",
    "refuse_unexplained",
]

ATTEMPTS = 3  # a cap: every attempt draws fresh rows
COARSE_ATTEMPTS = 6  # in coarse arithmetic, where one start in four shows too few or too many heads
_COARSE_BITS = 12  # above the 11 bits of float16 and the 8 of bfloat16, below the 24 of float32
FLOAT16_BITS = 11  # significant bits: the one format in use whose numbers overflow at 65504
_OVERFLOW = (
    "rows long enough to saturate the scores overflow in float16 inside the target; ask the same layer in "
    "bfloat16 or float32"
)
_SINGULAR = (
    "the equations of a fit were singular, as with heads that are equal up to rounding, or weights that are "
    "all 0 or 1"
)
# attempts that may end before a fit: what stands in the way of two random starts stands in that of a third
_SAME_OBSTACLE = 2
# residual of the fit over the rounding of a unit row. Right fits of coarse layers left 0.4 to 1.1, wrong ones
# 2.1 and more; those of fine layers leave up to 8 where scores are strong, fits that stopped early 17 and
# more, and wrong ones hundreds.
_EXPLAINED, _EXPLAINED_COARSE = 12.0, 1.6


def is_coarse(bits: int) -> bool:
    """Whether numbers of so many significant bits need the fits of coarse arithmetic."""
    return bits < _COARSE_BITS


class NotBelieved(Exception):
    """Why a fit is not believed."""


def refuse_unexplained(left: float, coarse: bool, obstacle: str) -> None:
    """left: residual of a fit over the rounding of a unit row. Raises NotBelieved where that is too much.
    obstacle: what probably stands in the way, in brackets."""
    if left > (_EXPLAINED_COARSE if coarse else _EXPLAINED):
        raise NotBelieved(f"the fit leaves {left:.1f} times the layer's rounding{obstacle}")


Found = TypeVar("Found")


def first_believed(attempt: Callable[[], Found], bits: int) -> Found:
    """The first fit that is believed. Raises Unresolved with the reasons of all where none is.

    attempt: raises NotBelieved where its fit is not."""
    reasons: list[str] = []
    obstacles: list[str] = []
    coarse = is_coarse(bits)
    for _ in range(COARSE_ATTEMPTS if coarse else ATTEMPTS):
        try:
            return attempt()
        except NotBelieved as reason:
            reasons.append(str(reason))
        except (Unresolved, np.linalg.LinAlgError) as obstacle:
            singular = isinstance(obstacle, np.linalg.LinAlgError)
            obstacles.append(_SINGULAR if singular else str(obstacle))
            if len(obstacles) == _SAME_OBSTACLE and not coarse:
                break
        except NonFiniteAnswers:
            if bits != FLOAT16_BITS:
                raise
            obstacles.append(_OVERFLOW)
    raise Unresolved(
        f"the layer computes with {bits}-bit numbers, and its heads could not be told apart through that "
        f"rounding: {'; '.join(dict.fromkeys(reasons + obstacles))}. Float64 arithmetic would help"
    )
