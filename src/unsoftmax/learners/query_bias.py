"""A query bias alone, as where a fixed query asks, whatever the last row is: attention pooling."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["bias_alone"]

# W and w0 are measured together. Without a W, 1e-15 to 2e-14 of w0 stood in its place, and 3e-12 behind
# values of condition 1e5.
_ROUNDING = 1e-10


def bias_alone(W: Array, w0: Array) -> bool:
    """Whether W is no more than the rounding of the w0 that was measured beside it.

    >>> bias_alone(np.full((2, 2), 1e-16), np.ones(2))
    True
    """
    return float(np.linalg.norm(W)) <= _ROUNDING * float(np.linalg.norm(w0))
