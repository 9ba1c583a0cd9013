"""How far apart are two sets of neurons, up to order and reflection?"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.models.networks.network import CanonicalNeurons

__all__ = ["neuron_distance"]


def neuron_distance(mine: CanonicalNeurons, theirs: CanonicalNeurons) -> float:
    """Largest relative difference of matched neurons and of the affine parts; at least 1 when a neuron has no
    partner.

    A neuron's [a, b] counts relative to its own size, its weights relative to their own size but at least a
    thousandth of the largest, the affine part relative to all that adds to it.
    """
    if len(mine.inner) != len(theirs.inner):
        return 1.0
    affine = float(np.linalg.norm(mine.affine - theirs.affine))
    whole = float(np.hypot(np.linalg.norm(mine.affine), np.linalg.norm(mine.inner.T @ np.abs(mine.outer))))
    beside = affine / whole if whole > 0 else affine
    if not len(mine.inner):
        return beside
    costs = _costs(mine, theirs)
    return max(float(costs[linear_sum_assignment(costs)].max()), beside)


def _costs(mine: CanonicalNeurons, theirs: CanonicalNeurons) -> Array:
    """(J, J) relative differences of neurons, the better of both reflections."""
    size = np.linalg.norm(mine.inner, axis=1)[:, None]
    strength = np.linalg.norm(mine.outer, axis=1)
    strength = np.maximum(strength, 1e-3 * strength.max())[:, None]
    both = []
    for sign, weight in ((1.0, 1.0), (-1.0, float(mine.sign))):
        inner = np.linalg.norm(mine.inner[:, None] - sign * theirs.inner[None], axis=-1) / size
        outer = np.linalg.norm(mine.outer[:, None] - weight * theirs.outer[None], axis=-1) / strength
        both.append(np.maximum(inner, outer))
    return np.asarray(np.minimum(both[0], both[1]))
