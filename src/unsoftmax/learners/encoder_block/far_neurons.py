"""Inputs of a network beyond hyperplanes that random inputs hardly cross, so that a fit knows every neuron.

In trained layers a neuron may be on in a thousandth of the sphere that a norm's output fills: then random
inputs fix it by a handful of answers, or not at all.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["beyond_rare_hyperplanes"]

_SURPLUS = 1.5  # inputs beyond a hyperplane over the numbers that fix its neuron
_DEEPEST = 0.6  # of the way from the hyperplane to the end of the sphere


def beyond_rare_hyperplanes(inner: Array, points: Array, radius: float, rng: np.random.Generator) -> Array:
    """Further points of this norm, so that with `points` (n, k) enough lie on either side of every hyperplane
    of inner (J, k + 1) that meets the sphere."""
    k = points.shape[1]
    on = points @ inner[:, :-1].T + inner[:, -1] > 0.0
    sizes = np.linalg.norm(inner[:, :-1], axis=1)
    normals, places = inner[:, :-1] / sizes[:, None], -inner[:, -1] / sizes
    wanted = int(_SURPLUS * (k + 1)) + 1
    found = [np.empty((0, k))]
    for side in (1.0, -1.0):
        seen = (on if side > 0.0 else ~on).sum(axis=0)
        for j in np.flatnonzero((seen < wanted) & (side * places < 0.99 * radius)):
            count = wanted - int(seen[j])
            depth = rng.uniform(0.0, _DEEPEST, (count, 1))
            along = np.maximum(side * places[j], -radius)
            along = side * (along + depth * (radius - along))
            across = rng.standard_normal((count, k))
            across -= np.outer(across @ normals[j], normals[j])
            across /= np.linalg.norm(across, axis=1, keepdims=True)
            found.append(along * normals[j] + np.sqrt(radius**2 - along**2) * across)
    return np.concatenate(found)
