"""First derivatives by central differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["jacobian"]


def jacobian(function: Callable[[Array], Array], point: Array, step: float) -> Array:
    """(out, n) derivatives at a point (n,), from steps of two sizes; the function takes points (B, n).

    >>> np.abs(jacobian(lambda x: x**3, np.array([1.0, 2.0]), 1e-2)).round(12)
    array([[ 3.,  0.],
           [ 0., 12.]])
    """
    n = len(point)
    offsets = step * np.concatenate([np.eye(n), -np.eye(n), 2.0 * np.eye(n), -2.0 * np.eye(n)])
    up, down, far_up, far_down = np.split(function(point + offsets), 4)
    return np.asarray((8.0 * (up - down) - (far_up - far_down)).T / (12.0 * step))
