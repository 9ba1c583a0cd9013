"""Hyperplanes of ReLU neurons from places of their kinks, far apart.

A hyperplane that is known to a hundredth predicts where its kink is, within a short step along the normal.
Two answers on either side show the place to the rounding of the answers, at many places of the hyperplane,
and the jump of the slope there. Other kinks within the steps change the jump, and such places are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["sharpened"]

# steps along the normal, over the distance of the places by √d: hyperplanes by differences of slopes were
# 1e-4 to 8e-3 off, some 3e-2, and a place is missed by so much of that distance; then shorter ones, where
# other kinks are dense
_STEPS = (1.2e-2, 4e-2, 3e-3)
_SPARE = 8  # places beyond so many for each unknown: other kinks spoil one in seven among 64 neurons, d = 32
_SURPLUS = 1.5  # half as many places again as a plane has unknowns, since some are near other kinks
_LEAST = 1.2  # places for each unknown, below which nearly any places would seem to lie on a hyperplane
_SAME_JUMP = 0.1  # of the usual jump: places whose jump is further from it hold another kink
_GAUSSIAN = 1.4826  # standard deviation over the median of sizes
_STRAY = 4.0  # standard deviations: beyond lie places with two kinks
# directions that the places do not show: far below their float32 grid, 6e-8, far above float64 rounding
_TOLD = 1e-9


def sharpened(
    ask: Callable[[Array], Array], folds: Array, radius: float, rng: np.random.Generator
) -> tuple[Array, NDArray[np.bool_]]:
    """(folds, which of them were met): rows [w, b, jump] with |w| = 1, jump of the slope along w. ask: (n, d)
    -> (n, 1), from which the jumps of these rows were taken off. radius: how far apart places are."""
    sharp, met = folds.copy(), np.zeros(len(folds), dtype=bool)
    for step in _STEPS:
        left = np.flatnonzero(~met)
        if len(left):
            for i, solved in zip(left, _solved(ask, folds[left], radius, step, rng), strict=True):
                if solved is not None:
                    sharp[i], met[i] = solved, True
    return sharp, met


def _solved(
    ask: Callable[[Array], Array], folds: Array, radius: float, step: float, rng: np.random.Generator
) -> list[Array | None]:
    """For every fold, the sharper one; None where too few places show one kink."""
    planes, d = folds[:, :-1], folds.shape[1] - 2
    count = int(_SURPLUS * d) + _SPARE
    w, b = planes[:, None, :-1], planes[:, -1]
    far = np.maximum(radius, np.abs(b)) / np.sqrt(d)
    places = far[:, None, None] * rng.standard_normal((len(planes), count, d))
    places = places - ((places * w).sum(axis=2) + b[:, None])[:, :, None] * w
    h = step * far[:, None]
    ends = np.stack([places + (k * h)[:, :, None] * w for k in (-2.0, -1.0, 1.0, 2.0)])
    low, near, beside, high = ask(ends.reshape(-1, d)).reshape(4, len(planes), count)
    beside, high = (side + k * h * folds[:, -1:] for k, side in ((1.0, beside), (2.0, high)))
    jumps = (high - beside - near + low) / h
    # the left line is 2·near − low in the middle, the right one 2·beside − high
    offsets = (2.0 * near - low - 2.0 * beside + high) / np.where(jumps == 0.0, np.inf, jumps)
    usual = np.median(jumps, axis=1, keepdims=True)
    apart = np.abs(jumps - usual)
    stray = _STRAY * _GAUSSIAN * np.median(apart, axis=1, keepdims=True)
    limit = np.minimum(_SAME_JUMP * np.abs(usual), stray)
    good = (apart <= limit) & (np.abs(offsets) < h)
    # an offset holds ten units of the answers' variance over jump², a jump four over h²
    scale = np.sqrt(10.0 / 4.0) * h[:, 0] * _GAUSSIAN * np.median(apart, axis=1) / np.abs(usual[:, 0])
    found = [_plane(*each) for each in zip(planes, places, offsets, scale, good, strict=True)]
    return [
        None if plane is None else np.append(plane, jump) for plane, jump in zip(found, usual, strict=True)
    ]


def _plane(
    plane: Array, places: Array, offsets: Array, scale: float, good: NDArray[np.bool_]
) -> Array | None:
    """The hyperplane through places + offset·w, by least squares without places that miss it by far more than
    rounding explains: other hyperplanes that are known a little wrong move an offset, and no jump. scale: of
    the rounding of offsets."""
    d = len(plane) - 1
    along = places - np.outer(places @ plane[:-1], plane[:-1])  # a change of w along w itself changes nothing
    X, missed = np.column_stack([along, np.ones(len(places))])[good], -offsets[good]
    while len(X) >= _LEAST * d + 2:
        left, values, right = np.linalg.svd(X, full_matrices=False)
        told = values > _TOLD * values[0]
        left = left[:, told]
        fitted = left.T @ missed
        off = (missed - left @ fitted) / np.sqrt(np.maximum(1.0 - (left**2).sum(axis=1), 1e-6))
        worst = int(np.abs(off).argmax())
        if abs(off[worst]) <= _STRAY * scale:
            found = plane + right[told].T @ (fitted / values[told])
            return np.asarray(found / np.linalg.norm(found[:-1]))
        X, missed = np.delete(X, worst, axis=0), np.delete(missed, worst)
    return None
