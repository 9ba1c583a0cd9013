"""Symmetric matrices as vectors whose inner product is that of the matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["as_matrices", "as_vectors", "product_vectors"]


def as_vectors(matrices: Array) -> Array:
    """(..., n, n) symmetric to (..., n(n+1)/2).

    >>> as_vectors(np.eye(2))
    array([1., 0., 1.])
    """
    i, j = np.triu_indices(matrices.shape[-1])
    return np.asarray(matrices[..., i, j] * _weights(i, j))


def as_matrices(vectors: Array, n: int) -> Array:
    """The inverse of `as_vectors`."""
    i, j = np.triu_indices(n)
    out = np.zeros((*vectors.shape[:-1], n, n))
    entries = vectors / _weights(i, j)
    out[..., i, j] = entries
    out[..., j, i] = entries
    return out


def product_vectors(a: Array, b: Array) -> Array:
    """The vectors of (abᵀ + baᵀ)/2 for rows a and b (..., n)."""
    i, j = np.triu_indices(a.shape[-1])
    return np.asarray((a[..., i] * b[..., j] + a[..., j] * b[..., i]) / 2.0 * _weights(i, j))


def _weights(i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
    return np.where(i == j, 1.0, np.sqrt(2.0))
