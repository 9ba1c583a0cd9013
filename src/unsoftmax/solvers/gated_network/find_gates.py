"""Rank-one elements of a space of symmetric matrices: the gates of a gated network.

Second derivatives of such a network lie in the span of g·gᵀ and g·uᵀ + u·gᵀ over all neurons (g gate, u up),
and the identity.
The rank-one elements are g·gᵀ. The power method x <- P(xxᵀ)x, P the projection on the space, climbs to them
from random starts;
later starts come from the part of the space that the neurons found so far do not explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.gated_network.symmetric import as_matrices, as_vectors, product_vectors

__all__ = ["Gates", "find_gates"]

_ROUNDS = 60  # of starts, at most, until all gates are found
_STARTS = 128  # of a round at most: a batch of this size keeps the matrix products busy
_SHIFT = 0.3  # of the power method: keeps the climb monotone
_ITERATIONS = 400  # of one climb, at most
_SETTLED = 1e-7  # change of a unit vector that ends a climb; refinements follow
# a start that ends below 1 minus this is not a rank-one element; right ones end within the noise of the space
_CLIMBED = 2e-3
_SAME = 0.995  # cosine above which two gates are one
_REFINEMENTS = 15  # at most; each doubles the digits
_KEPT = 0.8  # cosine that a refined gate must keep with its start
# second over third least singular value at a gate: two directions, g and u, belong to it and no third
_SHARP = 0.1


@dataclass(frozen=True, eq=False)
class Gates:
    """gates, ups: (m, n) unit rows, ups orthogonal to their gates. tried: starts that it took."""

    gates: Array
    ups: Array
    tried: int


def find_gates(
    space: Array, n: int, count: int, rng: np.random.Generator, climbed: float = _CLIMBED
) -> Gates:
    """Up to `count` gates in the span of the orthonormal columns of `space`, symmetric n×n matrices as
    vectors. climbed: how far below one the projection of a gate may be."""
    gates = np.empty((0, n))
    ups = np.empty((0, n))
    tried = 0
    for _ in range(_ROUNDS):
        starts = _starts(space, n, count, gates, ups, rng)
        tried += len(starts)
        ends, values = _climb(space, starts)
        for end in ends[values > 1.0 - climbed]:
            if len(gates) and np.abs(gates @ end).max() > _SAME:
                continue
            refined = _refined(space, end)
            if refined is None or (len(gates) and np.abs(gates @ refined[0]).max() > _SAME):
                continue
            gates, ups = np.vstack([gates, refined[0]]), np.vstack([ups, refined[1]])
        if len(gates) >= count:
            break
    return Gates(gates[:count], ups[:count], tried)


def _starts(space: Array, n: int, count: int, gates: Array, ups: Array, rng: np.random.Generator) -> Array:
    """Random directions; once half is found, leading eigenvectors of random elements of the unexplained
    part."""
    most = min(2 * count, _STARTS)
    if 2 * len(gates) < count:
        starts = rng.standard_normal((most, n))
    else:
        explained = np.concatenate(
            [product_vectors(gates, gates), product_vectors(gates, ups), as_vectors(np.eye(n))[None]]
        )
        basis = np.linalg.qr((explained @ space).T)[0]
        mixes = rng.standard_normal((max(8, min(most, 6 * (count - len(gates)))), space.shape[1]))
        mixes = mixes - (mixes @ basis) @ basis.T
        values, vectors = np.linalg.eigh(as_matrices(mixes @ space.T, n))
        starts = vectors[np.arange(len(mixes)), :, np.abs(values).argmax(axis=1)]
    return np.asarray(starts / np.linalg.norm(starts, axis=1, keepdims=True))


def _climb(space: Array, starts: Array) -> tuple[Array, Array]:
    """Where the power method ends, and |P(xxᵀ)|² there."""
    x, n = starts, starts.shape[1]
    for _ in range(_ITERATIONS):
        projected = as_matrices((product_vectors(x, x) @ space) @ space.T, n)
        moved = np.einsum("sij,sj->si", projected, x) + _SHIFT * x
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        change = np.abs(moved - x).max()
        x = moved
        if change < _SETTLED:
            break
    return x, np.asarray(((product_vectors(x, x) @ space) ** 2).sum(axis=1))


def _refined(space: Array, start: Array) -> tuple[Array, Array] | None:
    """(g, u) near a start: the maximum is flat along u, so the plane of g and u and then g inside it are
    found in turn."""
    g, n = start, len(start)
    for _ in range(_REFINEMENTS):
        outside = _outside(space, product_vectors(np.broadcast_to(g, (n, n)), np.eye(n)))
        values, vectors = np.linalg.eigh(outside @ outside.T)
        plane = vectors[:, :2].T
        # the one combination of p·pᵀ, (p·qᵀ + q·pᵀ)/√2, q·qᵀ that is not in the space; g is where its form
        # vanishes twice
        forms = np.array(
            [
                product_vectors(plane[0], plane[0]),
                np.sqrt(2.0) * product_vectors(*plane),
                product_vectors(plane[1], plane[1]),
            ]
        )
        missing = np.linalg.eigh((lambda r: r @ r.T)(_outside(space, forms)))[1][:, 2]
        form = np.array([[missing[0], missing[1] / np.sqrt(2.0)], [missing[1] / np.sqrt(2.0), missing[2]]])
        roots, axes = np.linalg.eigh(form)
        moved = axes[:, int(np.abs(roots).argmin())] @ plane
        moved *= np.sign(moved @ g) / np.linalg.norm(moved)
        change = np.linalg.norm(moved - g)
        g = moved
        if change < 1e-13:
            break
    up = plane.T @ np.array([-(plane[1] @ g), plane[0] @ g])
    up -= g * (up @ g)
    if abs(float(g @ start)) < _KEPT or values[1] > _SHARP * values[2]:
        return None
    return g, np.asarray(up / np.linalg.norm(up))


def _outside(space: Array, vectors: Array) -> Array:
    return np.asarray(vectors - (vectors @ space) @ space.T)
