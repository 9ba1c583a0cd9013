"""What a solver is: immutable options, and `solve`, which turns a meter's measurements into a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import FormMeter
from unsoftmax.models.matrices import Dense, Factors, Matrix

__all__ = ["Announce", "Solution", "Solver"]

Announce = Callable[[int], None]
"""Called with the number of measurements still to come, as soon as the solver knows it."""

AnyMeter = TypeVar("AnyMeter", bound=FormMeter, contravariant=True)


@dataclass(frozen=True)
class Solution:
    """A matrix, a bound on the Frobenius norm of its error (infinite: the solver has none), and its rank.

    complete: no assumption on the rank was needed, so the bound follows from the meter's errors alone.
    """

    matrix: Matrix
    error: float
    rank: int
    complete: bool = False

    def plus_column(self, column: Array, direction: Array, error: float) -> Solution:
        """The matrix plus column·directionᵀ, for a direction orthogonal to all that was solved for."""
        total = float(np.hypot(self.error, error))
        if isinstance(self.matrix, Factors):
            joint = Factors(
                np.column_stack([self.matrix.left, column]), np.column_stack([self.matrix.right, direction])
            )
            if joint.left.shape[1] < joint.width:
                return Solution(joint, total, self.rank + 1, self.complete)
        return Solution(
            Dense(self.matrix.dense() + np.outer(column, direction)), total, self.rank + 1, self.complete
        )


class Solver(Protocol[AnyMeter]):
    """Finds W from a meter of the kind that it fits: `FormMeter` (chooses its pairs in advance), `Meter`
    (measures inside subspaces), or `BoundedMeter` (uses the errors, too)."""

    def solve(self, meter: AnyMeter, rng: np.random.Generator, progress: Announce | None = None) -> Solution:
        """W. Every random choice comes from `rng`."""
