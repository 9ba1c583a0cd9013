"""How often a fit is tried, and when its result is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.outcomes import Unresolved

__all__ = ["ATTEMPTS", "FLOAT16_BITS", "Candidate", "first_believed"]

ATTEMPTS = 3  # a cap: every attempt draws fresh rows
_COARSE_ATTEMPTS = 6  # in coarse arithmetic, where one start in four shows too few or too many heads
_COARSE_BITS = 12  # above the 11 bits of float16 and the 8 of bfloat16, below the 24 of float32
FLOAT16_BITS = 11  # significant bits: the one format in use whose numbers overflow at 65504
_OVERFLOW = (
    "rows long enough to saturate the scores overflow in float16 inside the target; ask the same layer in "
    "bfloat16 or float32"
)
# attempts that may end before a fit: what stands in the way of two random starts stands in that of a third
_SAME_OBSTACLE = 2


class Candidate(Protocol):
    """A fit. why_not: the reason why it is not believed, None where it is."""

    @property
    def why_not(self) -> str | None: ...


Found = TypeVar("Found", bound=Candidate)


def first_believed(attempt: Callable[[], Found], bits: int) -> Found:
    """The first fit that is believed. Raises Unresolved with the reasons of all where none is."""
    reasons: list[str] = []
    obstacles: list[str] = []
    coarse = bits < _COARSE_BITS
    for _ in range(_COARSE_ATTEMPTS if coarse else ATTEMPTS):
        try:
            found = attempt()
        except (Unresolved, np.linalg.LinAlgError) as obstacle:
            obstacles.append(str(obstacle))
            if len(obstacles) == _SAME_OBSTACLE and not coarse:
                break
            continue
        except NonFiniteAnswers:
            if bits != FLOAT16_BITS:
                raise
            obstacles.append(_OVERFLOW)
            continue
        if found.why_not is None:
            return found
        reasons.append(found.why_not)
    raise Unresolved(
        f"the layer computes with {bits}-bit numbers, and its heads could not be told apart through that "
        f"rounding: {'; '.join(dict.fromkeys(reasons + obstacles))}. Float64 arithmetic would help"
    )
