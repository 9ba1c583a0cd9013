"""Many queries in batches of a good size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_parts"]


def in_parts(ask: Callable[[slice], NDArray[Any]], n: int, size: int) -> NDArray[Any]:
    """ask(part) for parts of at most `size` of n queries, put together.

    >>> in_parts(lambda part: np.arange(5.0)[part], 5, 2)
    array([0., 1., 2., 3., 4.])
    """
    if n == 0:
        return ask(slice(0, 0))
    return np.concatenate([ask(slice(start, min(start + size, n))) for start in range(0, n, size)])
