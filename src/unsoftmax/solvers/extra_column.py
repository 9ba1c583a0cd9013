"""Few columns span the range of W badly when they are nearly dependent: one more, where they say least, mends
that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.matrices import Factors

__all__ = ["Again", "repaired"]

Again = Callable[[Array, Array, float], Array]
"""again(b, near, error): W b measured afresh, given that it is `near` up to a vector of about the length
`error`."""

_WELL = 10.0  # times the square root of d: more than random columns usually magnify errors by
_MOST = 3  # columns more: each removes the worst direction that is left


def repaired(found: Factors, B: Array, columns: Array, noise: float, again: Again, facing: Array) -> Factors:
    """`found` with the errors removed that its first columns W·B (d×k, B orthonormal) carried into it;
    `noise`: error of a form of theirs.

    The row space of W is known well whatever the columns are, since it is the same for every combination of
    rows. What W does there follows from the columns, with their errors magnified by as much as they are
    dependent. Where that is much, W is measured again in the worst direction of the row space (plus some of
    `facing`, which every b shall see): it is known roughly, so few digits have to be asked for.
    """
    d = found.width
    span, values, row_space = found.svd()
    rank = int((values > 1e-13 * values[0]).sum()) if len(values) else 0
    span, row_space = span[:, :rank], row_space[:, :rank]
    if not rank or rank < B.shape[1]:
        return found
    towards = facing / np.linalg.norm(facing)
    seen = B.T @ row_space
    left = values[:rank] * span
    for _ in range(_MOST):
        if float(np.linalg.norm(np.linalg.pinv(seen))) <= _WELL * np.sqrt(d):
            break
        worst = np.linalg.svd(seen)[2][-1]
        b = row_space @ worst
        b = b + (0.5 if b @ towards >= 0.0 else -0.5) * towards
        b /= np.linalg.norm(b)
        known = b @ row_space
        error = noise * np.sqrt(d) * float(np.linalg.norm(np.linalg.pinv(seen).T @ known))
        columns = np.column_stack([columns, again(b, left @ known, error)])
        seen = np.vstack([seen, known])
        left = np.asarray(np.linalg.lstsq(seen, columns.T, rcond=None)[0].T, dtype=np.float64)
    return Factors(left, row_space)
