"""W and w0 from z = Wb + w0 at d + 1 rows b that see one direction alike: d orthogonal ones, and the first of
them turned round."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.bases import FacingBasis

__all__ = ["balanced_rows", "solve_rows"]


def balanced_rows(direction: Array, length: float, rng: np.random.Generator) -> Array:
    """d + 1 rows (d+1, d) of one length, so that z there tells W and w0 alike; but for the last one's sign,
    all have the same product with `direction`.

    >>> B = balanced_rows(np.array([0.6, 0.8]), 2.0, np.random.default_rng(0))
    >>> np.round(B @ np.array([0.6, 0.8]), 6)
    array([ 1.414214,  1.414214, -1.414214])
    """
    d = len(direction)
    basis = FacingBasis(d, rng, direction).columns(0, d).T
    return np.asarray(length * np.vstack([basis, -basis[:1]]))


def solve_rows(B: Array, Z: Array) -> tuple[Array, Array]:
    """W and w0 with W b + w0 = z at every row.

    >>> B = balanced_rows(np.array([0.6, 0.8]), 2.0, np.random.default_rng(0))
    >>> W, w0 = solve_rows(B, B @ np.array([[1.0, 2.0], [3.0, 4.0]]).T + np.array([5.0, 6.0]))
    >>> np.round(W, 9), np.round(w0, 9)
    (array([[1., 2.],
           [3., 4.]]), array([5., 6.]))
    """
    length = float(np.linalg.norm(B[0]))
    found = np.linalg.solve(np.column_stack([B / length, np.ones(len(B))]), Z)
    return np.asarray(found[:-1].T / length), np.asarray(found[-1])
