"""A grid of scores, each asked again, smaller, until it is moderate: for answers with errors, behind which a
saturated score cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["MODERATE_SCORE", "GridScores", "Indices", "moderate_scores"]

Indices = NDArray[np.intp]
Look = Callable[[Indices, Indices, Array], tuple[Array, Array]]
"""look(rows, columns, sizes): scores at these places and sizes, and how far off each can be."""

# Root mean square of the scores aimed at. With F as in mirrored_rows, an error of the answer moves a score t
# by a part of 1/(t F'(t)) of it, which is least at t = 1.1 and grows fast beyond; scores spread around it.
MODERATE_SCORE = 0.9
_LARGEST_SCORE = 2.2  # beyond, the share is too flat: ask again at a smaller size
_READABLE = 4.0  # beyond, the score is an order of magnitude
_MUCH_SMALLER = 0.12  # factor where the score is not readable
_ROUNDS = 12  # at 0.12 each, sizes fall to 1e-11 of the first
_PILOTS = 6  # their root mean square is then known to about 30 %
_MANY = 12  # probes of a row from which some of them are pilots


@dataclass(frozen=True)
class GridScores:
    """Scores (n, m), how far off each can be (infinite: never read), and the sizes at which each was read."""

    scores: Array
    errors: Array
    sizes: Array


def moderate_scores(look: Look, sizes: Array, gain: Callable[[Array], Array], largest: float) -> GridScores:
    """All scores of a grid that starts at `sizes` (n, m), none of them larger than `largest`.

    The first few probes of a row tell how large the others should be. gain(sizes): how much a size is worth;
    of several readings the one with the least error over gain is kept.
    """
    n, m = sizes.shape
    sizes = sizes.copy()
    scores, errors, kept = np.zeros((n, m)), np.full((n, m), np.inf), sizes.copy()
    pilots = min(_PILOTS, m // 4) if m >= _MANY else 0
    todo = np.ones((n, m), dtype=bool)
    todo[:, pilots:] = pilots == 0
    for round_ in range(_ROUNDS):
        j, i = np.nonzero(todo)
        if not len(j):
            break
        asked = sizes[j, i]
        t, error = look(j, i, asked)
        better = error / gain(asked) < errors[j, i] / gain(kept[j, i])
        at = j[better], i[better]
        scores[at], errors[at], kept[at] = t[better], error[better], asked[better]
        saturated = (np.abs(t) > _LARGEST_SCORE) | ~np.isfinite(error)
        todo = np.zeros((n, m), dtype=bool)
        todo[j[saturated], i[saturated]] = True
        readable = (np.abs(t) < _READABLE) & np.isfinite(error)
        smaller = np.where(readable, 1.0 / np.maximum(np.abs(t), 1.0), _MUCH_SMALLER)
        sizes[j, i] *= np.where(saturated, smaller, 1.0)
        if round_ == 0 and pilots:
            seen = np.minimum(np.abs(t), _READABLE).reshape(n, pilots) ** 2
            typical = np.sqrt((MODERATE_SCORE**2 + seen.sum(axis=1)) / (pilots + 1))
            rest = sizes[:, pilots:] * (MODERATE_SCORE / typical)[:, None]
            sizes[:, pilots:] = np.minimum(rest, largest)
            todo[:, pilots:] = True
    return GridScores(scores, errors, kept)
