"""What a meter needs to know of the readout v behind answers with errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["MeasuredReadout"]


@dataclass(frozen=True)
class MeasuredReadout:
    """v read with rows of norm R (`bound`) in a random orthonormal basis: x·v is off by about tau/R for every
    unit x.

    tau: how far an answer may be off. sharp: largest error of x·v for a unit x, where v is known better than
    one reading tells. relative: what an answer may be off by besides tau, as a part of its size; only meters
    that say so take it into account.
    """

    v: Array
    c: float
    tau: float
    bound: float
    sharp: float | None = None
    relative: float = 0.0

    @property
    def norm(self) -> float:
        """Length of v."""
        return float(np.linalg.norm(self.v))
