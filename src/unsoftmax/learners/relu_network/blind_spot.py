"""How narrow can a bump be that no row has met? Measured on the rows themselves."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["blind_spot"]

_DIRECTIONS = 256  # their 99 % quantile is known to a few percent
_DISTANCES = 9  # from the middle to the farthest row
_CONFIDENCE = 0.99  # of the width that is stated
_ROWS = 8000  # more are not looked at, which can only widen the answer


def blind_spot(rows: Array, far: float, rng: np.random.Generator) -> float:
    """The width above which a slab of random direction, whose middle is at most `far` from the origin,
    contains a row with 99 % confidence.

    >>> blind_spot(np.linspace(-5.0, 5.0, 101)[:, None], 3.0, np.random.default_rng(0)) < 0.21
    True
    """
    if len(rows) > _ROWS:
        rows = rows[rng.choice(len(rows), _ROWS, replace=False)]
    directions = rng.standard_normal((rows.shape[1], _DIRECTIONS))
    places = np.sort(rows @ (directions / np.linalg.norm(directions, axis=0)), axis=0)
    middles = np.linspace(-far, far, 2 * _DISTANCES - 1)
    nearest = np.empty((_DIRECTIONS, len(middles)))
    for along, found in zip(places.T, nearest, strict=True):
        after = np.searchsorted(along, middles)
        above = along[np.minimum(after, len(along) - 1)]
        below = along[np.maximum(after - 1, 0)]
        found[:] = np.minimum(np.abs(above - middles), np.abs(middles - below))
    # both sides of the origin together
    folded = np.concatenate([nearest[:, _DISTANCES - 1 :], nearest[:, _DISTANCES - 1 :: -1]])
    return float(2.0 * np.quantile(folded, _CONFIDENCE, axis=0).max())
