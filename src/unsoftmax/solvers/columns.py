"""Theorem 4.1's solver: d linear measurements of every column, d linear systems."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import Meter

__all__ = ["gaussian_probes", "solve_columns", "structured_probes"]


def solve_columns(meter: Meter, probes: Callable[[int], Array]) -> Array:
    """W column by column: Z w_j = t with Z = probes(j), t the d forms of the rows of Z with e_j."""
    d = meter.width
    W = np.empty((d, d))
    for j in range(d):
        Z = probes(j)
        asking = np.zeros((d, d))
        asking[:, j] = 1.0
        W[:, j] = np.linalg.solve(Z, meter.forms(Z, asking))
    return W


def gaussian_probes(width: int, rng: np.random.Generator) -> Callable[[int], Array]:
    """Fresh Gaussian probes for every column: independent, and never orthogonal to v, with probability
    one."""
    return lambda _: rng.standard_normal((width, width))


def structured_probes(v: Array) -> Callable[[int], Array]:
    """u_l = e_l where v_l is not zero, else e_l + e_p with v_p the largest entry.

    >>> structured_probes(np.array([0.0, 2.0]))(0)
    array([[1., 1.],
           [0., 1.]])
    """
    Z = np.eye(len(v))
    Z[v == 0.0, int(np.abs(v).argmax())] = 1.0
    return lambda _: Z
