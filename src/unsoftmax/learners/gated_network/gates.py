"""Gates of a gated network inside the span of its Hessians: pairs (g, u) with g gᵀ and g uᵀ + u gᵀ in the
span.

Beside g the span holds the tangent g uᵀ + u gᵀ, so the power method only creeps towards g gᵀ, and stops
somewhere in the plane of g and u. Inside that plane g is found by linear algebra.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.rank_one import climb, products, starts

__all__ = ["find_gates", "settled"]

_CREEP = 1e-2  # how far from a rank-one form of the span the power method may have stopped
_ROUNDS = 30  # of starts, at most, until all gates are found
_CLIMB = 200  # steps of the power method; further ones only creep
_ITERATIONS = 6  # of the power method before Newton steps
_NEWTON = 8  # steps; each doubles the digits
_SAME = 0.999  # cosine of two gates that are one


def find_gates(
    space: Array, q: int, units: int, rng: np.random.Generator, *, defect: float
) -> tuple[Array, Array]:
    """(g (J, q), w (J, q)): unit gates, and unit vectors orthogonal to them in the plane of gate and up
    row."""
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
    g = start
    for _ in range(_ITERATIONS):
        g, w = _in_plane(space, g)
    return _newton(space, g, w)


def _in_plane(space: Array, g: Array) -> tuple[Array, Array]:
    """A better g, and the w orthogonal to it, in the plane that g's products with the span suggest."""
    q = len(g)
    rows = products(np.broadcast_to(g, (q, q)), np.eye(q))
    rest = _beside(space, rows)
    plane = np.linalg.eigh(rest @ rest.T)[1][:, :2].T
    mixed = np.sqrt(2.0) * products(plane[0], plane[1])
    left = _beside(space, np.stack([products(plane[0], plane[0]), mixed, products(plane[1], plane[1])]))
    # the one form on the plane that the span does not hold; g is its kernel
    a, b, c = np.linalg.eigh(left @ left.T)[1][:, 2]
    values, vectors = np.linalg.eigh(np.array([[a, b / np.sqrt(2.0)], [b / np.sqrt(2.0), c]]))
    kernel = vectors[:, np.abs(values).argmin()]
    moved = kernel @ plane
    return np.asarray(moved * np.sign(moved @ g)), np.array([-kernel[1], kernel[0]]) @ plane


def _newton(space: Array, g: Array, w: Array) -> tuple[Array, Array, float]:
    """Gauss-Newton on g gᵀ and g wᵀ beside the span."""
    eye = np.eye(len(g))
    outside = np.inf
    for _ in range(_NEWTON):
        both = np.stack([products(g, g), np.sqrt(2.0) * products(g, w)])
        rest = _beside(space, both)
        outside = float((rest**2).sum())
        by_g = [2.0 * products(eye, g[None]), np.sqrt(2.0) * products(eye, w[None])]
        by_w = [np.zeros_like(by_g[0]), np.sqrt(2.0) * products(eye, g[None])]
        jacobian = np.concatenate(
            [_beside(space, np.concatenate(pair)) for pair in zip(by_g, by_w, strict=True)], axis=1
        )
        zero = np.zeros_like(g)  # unit vectors stay unit, and orthogonal, to first order
        fixed = np.stack([np.append(g, zero), np.append(zero, w), np.append(w, g)])
        system = np.vstack([jacobian.T, fixed])
        step = np.linalg.lstsq(system, np.append(-rest.ravel(), np.zeros(3)), rcond=None)[0]
        g, w = g + step[: len(g)], w + step[len(g) :]
        g = g / np.linalg.norm(g)
        w = w - g * (w @ g)
        size = float(np.linalg.norm(w))
        if not size > 0.0:
            return g, w, np.inf  # one direction stands for both, and there is no gate
        w = w / size
    return g, w, outside


def _beside(space: Array, forms: Array) -> Array:
    return np.asarray(forms - (forms @ space) @ space.T)
