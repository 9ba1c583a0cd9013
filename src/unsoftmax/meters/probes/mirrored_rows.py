"""Three rows [b+a; b-a; b]: y = b·v + (a·v)·F(aᵀWb), with F odd and steep, inverted with an interval for the
score."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["odd_rows", "odd_share", "score_interval", "score_of_share"]

_LARGEST_SHARE = 1.0 - 1e-13  # a score of 30


def odd_rows(A: Array, B: Array) -> Array:
    """The sequences [b+a; b-a; b], one for each pair of rows.

    >>> odd_rows(np.array([[2.0]]), np.array([[1.0]]))[0, :, 0]
    array([ 3., -1.,  1.])
    """
    return np.stack([B + A, B - A, B], axis=1)


def odd_share(score: Array) -> Array:
    """F(t) = 2 sinh t / (1 + 2 cosh t): the share of a in the answer. Its slope at zero is 2/3, against 1/4
    for two rows.

    >>> float(odd_share(np.array(0.0)))
    0.0
    """
    t = np.clip(score, -700.0, 700.0)
    up, down = np.exp(t), np.exp(-t)
    return np.asarray((up - down) / (1.0 + up + down))


def score_of_share(share: Array) -> Array:
    """The score t with F(t) = share, for shares between -1 and 1 (values outside are held at the edge).

    >>> round(float(score_of_share(odd_share(np.array(1.25)))), 12)
    1.25
    """
    size = np.minimum(np.abs(share), _LARGEST_SHARE)
    odds = (size + np.sqrt(4.0 - 3.0 * size * size)) / (2.0 * (1.0 - size))
    return np.asarray(np.sign(share) * np.log(odds))


def score_interval(
    signal: Array, signal_error: Array, readout: Array, readout_error: Array
) -> tuple[Array, Array]:
    """The score with F(t) = signal/readout, and how far off it can be; infinite where the interval reaches
    saturation.

    signal: y - b·v, known to signal_error. readout: a·v, known to readout_error.

    >>> t, error = score_interval(np.array([0.5]), np.array([0.01]), np.array([1.0]), np.array([0.0]))
    >>> round(float(t[0]), 3), round(float(error[0]), 3)
    (0.834, 0.021)
    >>> negative = score_interval(np.array([-0.5]), np.array([0.01]), np.array([-1.0]), np.array([0.0]))
    >>> float(negative[0][0]) == float(t[0])
    True
    """
    sign = np.where(readout < 0.0, -1.0, 1.0)
    z, size = signal * sign, np.abs(readout)
    nearest = np.maximum(size - readout_error, 1e-300)
    low = (z - signal_error) / np.where(z > signal_error, size + readout_error, nearest)
    high = (z + signal_error) / np.where(z + signal_error > 0.0, nearest, size + readout_error)
    score = score_of_share(z / np.maximum(size, 1e-300))
    within = np.maximum(score_of_share(high) - score, score - score_of_share(low))
    error = np.where((low <= -1.0) | (high >= 1.0), np.inf, within)
    return np.asarray(score), np.asarray(error)
