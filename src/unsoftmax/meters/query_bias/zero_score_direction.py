"""A loud direction that the scores of one asking row do not hear, found by halving an arc at whose ends the
scores have opposite signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["silent_between", "silent_carrier"]

SILENT = 0.3  # a score so small leaves room for what is to be measured
_LOUD = (0.8, 0.5, 0.25)  # parts of the loudest direction that a carrier keeps, the best first
_ARCS = 6
_HALVINGS = 70

Scores = Callable[[Array], tuple[Array, Array]]


def silent_carrier(scores: Scores, loudest: Array, rng: np.random.Generator) -> Array | None:
    """A unit vector p near `loudest` with a score near zero; None when every such vector is far from it.

    scores: for unit rows p, their scores (of which only the sign counts where they are saturated) and how far
    off these can be.

    >>> z = np.array([30.0, 40.0, 0.0])
    >>> p = silent_carrier(lambda P: (P @ z, np.zeros(len(P))), np.array([1.0, 0.0, 0.0]),
    ...     np.random.default_rng(0))
    >>> bool(abs(p @ z) <= 0.3 and abs(p[0]) > 0.5)
    True
    """
    score, error = scores(loudest[None])
    if _silent(score[0], error[0]):
        return loudest
    for part in _LOUD:
        beside = rng.standard_normal((_ARCS if len(loudest) > 2 else 1, len(loudest)))
        beside -= np.outer(beside @ loudest, loudest)
        beside *= np.sqrt(1.0 - part * part) / np.linalg.norm(beside, axis=1)[:, None]
        first, last = part * loudest + beside, part * loudest - beside
        signs = np.sign(scores(np.concatenate([first, last]))[0]).reshape(2, -1)
        for arc in np.nonzero(signs[0] * signs[1] < 0.0)[0]:
            found = silent_between(scores, first[arc], last[arc])
            if found is not None:
                return found
    return None


def silent_between(scores: Scores, first: Array, last: Array) -> Array | None:
    """The unit vector on the arc from `first` to `last` whose score vanishes; None where their scores have
    one sign."""
    ends = np.sign(scores(np.stack([first, last]))[0])
    if ends[0] == ends[1]:
        return None
    for _ in range(_HALVINGS):
        middle = first + last
        middle /= np.linalg.norm(middle)
        score, error = scores(middle[None])
        if _silent(score[0], error[0]):
            return np.asarray(middle)
        if np.sign(score[0]) == ends[0]:
            first = middle
        else:
            last = middle
    return None


def _silent(score: float, error: float) -> bool:
    return bool(np.isfinite(error) and abs(score) <= SILENT)
