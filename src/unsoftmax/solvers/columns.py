"""Theorem 4.1's solver: d linear measurements of every column, d linear systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import FormMeter
from unsoftmax.models.matrices import Dense
from unsoftmax.solvers.base import Announce, Solution

__all__ = ["Columns", "ProbeRows", "gaussian_probes", "structured_probes"]

ProbeRows = Callable[[int, np.random.Generator], Array]
"""probes(d, rng): an invertible matrix (d, d), drawn for every column; its rows are the a's."""


def gaussian_probes(width: int, rng: np.random.Generator) -> Array:
    """Fresh Gaussian rows: independent, and never orthogonal to v, with probability one."""
    return rng.standard_normal((width, width))


def structured_probes(v: Array) -> ProbeRows:
    """u_l = e_l where v_l is not zero, else e_l + e_p with v_p the largest entry.

    >>> structured_probes(np.array([0.0, 2.0]))(2, np.random.default_rng(0))
    array([[1., 1.],
           [0., 1.]])
    """
    Z = np.eye(len(v))
    Z[v == 0.0, int(np.abs(v).argmax())] = 1.0
    return lambda width, rng: Z


@dataclass(frozen=True)
class Columns:
    """W column by column: Z w_j = t, with Z from `probes` and t the d forms of the rows of Z with e_j."""

    probes: ProbeRows = gaussian_probes

    def solve(self, meter: FormMeter, rng: np.random.Generator, progress: Announce | None = None) -> Solution:
        """W, with entries that are not finite where the meter could not read a form."""
        d = meter.width
        if progress is not None:
            progress(d * d)
        W = np.empty((d, d))
        for j in range(d):
            Z = self.probes(d, rng)
            asking = np.zeros((d, d))
            asking[:, j] = 1.0
            W[:, j] = np.linalg.solve(Z, meter.forms(Z, asking))
        return Solution(Dense(W), np.inf, d)
