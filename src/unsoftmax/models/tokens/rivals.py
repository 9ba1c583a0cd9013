"""Tokens that compete with an asking one: their scores show in the answer to the two of them."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, Ids, expit

__all__ = ["rivals"]

_CHUNK = 1 << 22  # scores at once, 32 MB


def rivals(keys: Array, values: Array, own: Array, own_values: Array, queries: Array, count: int) -> Ids:
    """For every asking token j the `count` others whose score moves the answer to [i, j] most, (n, count).

    keys: (V, k). values: (V,) or (V, m). queries: (n, k), of the asking tokens; own: (n,), their scores
    against themselves; own_values: (n,) or (n, m). A token of the same value, as j itself, comes last.

    >>> keys = np.array([[0.0], [-9.0], [0.1], [-1.0]])
    >>> rivals(keys, np.arange(4.0), np.zeros(1), np.zeros(1), np.ones((1, 1)), 2)
    array([[3, 2]])
    """
    count = min(count, len(keys))
    found = np.empty((len(own), count), dtype=np.int64)
    u, u_own = values.reshape(len(values), -1), own_values.reshape(len(own), -1)
    step = max(1, _CHUNK // u.size)
    for start in range(0, len(own), step):
        part = slice(start, start + step)
        weights = expit(queries[part] @ keys.T - own[part, None])
        moves = weights * (1.0 - weights) * np.abs(u[None] - u_own[part, None]).max(axis=2)
        best = np.argpartition(-moves, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(moves, best, axis=1), axis=1, kind="stable")
        found[part] = np.take_along_axis(best, order, axis=1)
    return found
