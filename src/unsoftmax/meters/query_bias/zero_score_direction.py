"""A direction near v whose score is zero at one asking row, found by halving an arc at whose ends the scores
have opposite signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.meters.probes.bisection import halve

__all__ = ["zero_score_between", "zero_score_carrier"]

_SMALL_SCORE = 0.3  # a score so small leaves room for what is to be measured
_ALONG_V = (0.8, 0.5, 0.25)  # parts of a carrier that are along v, the best first
_ARCS = 6  # tried for each part; an arc is of use where its ends' scores differ in sign
_HALVINGS = 70  # an arc shorter than 4 is then halved beyond float64

Scores = Callable[[Array], tuple[Array, Array]]


def zero_score_carrier(scores: Scores, along_v: Array, rng: np.random.Generator) -> Array | None:
    """A unit vector p near `along_v` with a score near zero; None when every such vector is far from it.

    scores: for unit rows p, their scores (of which only the sign counts where they are saturated) and how far
    off these can be.

    >>> z = np.array([30.0, 40.0, 0.0])
    >>> scores = lambda P: (P @ z, np.zeros(len(P)))
    >>> p = zero_score_carrier(scores, np.array([1.0, 0.0, 0.0]), np.random.default_rng(0))
    >>> bool(abs(p @ z) <= 0.3 and abs(p[0]) > 0.5)
    True
    """
    score, error = scores(along_v[None])
    if _is_small(score[0], error[0]):
        return along_v
    for part in _ALONG_V:
        beside = rng.standard_normal((_ARCS if len(along_v) > 2 else 1, len(along_v)))
        beside -= np.outer(beside @ along_v, along_v)
        beside *= np.sqrt(1.0 - part * part) / np.linalg.norm(beside, axis=1)[:, None]
        first, last = part * along_v + beside, part * along_v - beside
        signs = np.sign(scores(np.concatenate([first, last]))[0]).reshape(2, -1)
        for arc in np.nonzero(signs[0] * signs[1] < 0.0)[0]:
            found = zero_score_between(scores, first[arc], last[arc])
            if found is not None:
                return found
    return None


def zero_score_between(scores: Scores, first: Array, last: Array) -> Array | None:
    """The unit vector on the arc from `first` to `last` whose score vanishes; None where their scores have
    one sign."""
    ends = np.sign(scores(np.stack([first, last]))[0])
    if ends[0] == ends[1]:
        return None
    middle, across = first + last, last - first
    middle, across = middle / np.linalg.norm(middle), across / np.linalg.norm(across)
    half = float(np.arctan2(last @ across, last @ middle))
    found: list[Array] = []

    def changed(angles: Array) -> NDArray[np.bool_]:
        if found:  # nothing more is asked
            return np.array([True])
        p = np.cos(angles[0]) * middle + np.sin(angles[0]) * across
        score, error = scores(p[None])
        if _is_small(score[0], error[0]):
            found.append(p)
        return np.array([np.sign(score[0]) != ends[0]])

    halve(changed, np.array([-half]), np.array([half]), _HALVINGS)
    return found[0] if found else None


def _is_small(score: float, error: float) -> bool:
    return bool(np.isfinite(error) and abs(score) <= _SMALL_SCORE)
