"""Directions beside a carrier: a simplex, so that their sum removes what all probes have in common."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["orthogonal_part", "simplex"]


def simplex(k: int, rng: np.random.Generator) -> Array:
    """k+1 unit vectors in k dimensions whose sum is zero, turned at random; one empty vector for k = 0.

    >>> G = simplex(3, np.random.default_rng(0))
    >>> bool(np.allclose(G.sum(axis=0), 0) and np.allclose(G @ G.T - np.eye(4) * 4 / 3, -1 / 3))
    True
    """
    if k == 0:
        return np.zeros((1, 0))
    corners = np.linalg.svd(np.eye(k + 1) - 1.0 / (k + 1))[0][:, :k] * np.sqrt((k + 1) / k)
    return np.asarray(corners @ np.linalg.qr(rng.standard_normal((k, k)))[0])


def orthogonal_part(basis: Array, p: Array) -> Array:
    """An orthonormal basis of the part of span(basis, p) that is orthogonal to the unit vector p.

    >>> orthogonal_part(np.eye(2), np.array([0.0, 1.0])).shape
    (2, 1)
    """
    left, values, _ = np.linalg.svd(basis - np.outer(p, p @ basis), full_matrices=False)
    return np.asarray(left[:, values > 1e-9])
