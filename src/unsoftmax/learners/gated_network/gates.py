"""Gates of a gated network inside the span of its Hessians: pairs (g, u) with g gᵀ and g uᵀ + u gᵀ in the span.

Beside g the span holds the tangent g uᵀ + u gᵀ, so the power method only creeps towards g gᵀ, and stops somewhere in the plane of
g and u. Inside that plane g is found by linear algebra.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.rank_one import climb, products, starts

__all__ = ["find_gates", "settled"]

_CREEP = 1e-2  # how far from a rank-one form of the span the power method may have stopped
_ROUNDS = 30
_CLIMB = 200  # steps of the power method; further ones only creep
_ITERATIONS = 30
_SAME = 0.999


def find_gates(space: Array, q: int, units: int, rng: np.random.Generator, *, defect: float) -> tuple[Array, Array]:
    """(g (J, q), w (J, q)): unit gates, and unit vectors orthogonal to them in the plane of gate and up row."""
    gates, others = np.empty((0, q)), np.empty((0, q))
    for _ in range(_ROUNDS):
        half = 2 * len(gates) >= units
        taken = np.concatenate([products(gates, gates), products(gates, others)]) if half else None
        count = max(8, min(2 * units + 8, 256, 6 * (units - len(gates)) if half else 256))
        x = climb(space, starts(space, q, taken, count, rng), _CLIMB)
        inside = ((products(x, x) @ space) ** 2).sum(axis=1)
        for start in x[inside > 1.0 - _CREEP]:
            if len(gates) and float(np.abs(gates @ start).max()) > _SAME:
                continue
            g, w, outside = settled(space, start)
            if outside < defect and (not len(gates) or float(np.abs(gates @ g).max()) < _SAME):
                gates, others = np.vstack([gates, g]), np.vstack([others, w])
        if len(gates) >= units:
            break
    return gates, others


def settled(space: Array, start: Array) -> tuple[Array, Array, float]:
    """(g, w, how far g gᵀ and g wᵀ are from the span, squared), from a start in or near the plane."""
    q, g = len(start), start
    outside = 1.0
    plane = np.empty((2, q))
    for _ in range(_ITERATIONS):
        rows = products(np.broadcast_to(g, (q, q)), np.eye(q))
        rest = rows - (rows @ space) @ space.T
        plane = np.linalg.eigh(rest @ rest.T)[1][:, :2].T
        inside = np.stack([products(plane[0], plane[0]), np.sqrt(2.0) * products(plane[0], plane[1]), products(plane[1], plane[1])])
        left = inside - (inside @ space) @ space.T
        a, b, c = np.linalg.eigh(left @ left.T)[1][:, 2]  # the one form on the plane that the span does not hold: g is its kernel
        values, vectors = np.linalg.eigh(np.array([[a, b / np.sqrt(2.0)], [b / np.sqrt(2.0), c]]))
        moved = vectors[:, np.abs(values).argmin()] @ plane
        moved *= np.sign(moved @ g) / np.linalg.norm(moved)
        change, g = float(np.abs(moved - g).max()), moved
        if change < 1e-13:
            break
    w = plane.T @ np.array([-(plane[1] @ g), plane[0] @ g])
    w /= np.linalg.norm(w)
    both = np.stack([products(g, g), np.sqrt(2.0) * products(g, w)])
    outside = float(((both - (both @ space) @ space.T) ** 2).sum())
    return g, w, outside
