"""Signs by lattice reduction: short integer relations between vectors, found with Lenstra-Lenstra-Lovász."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["reduce_basis", "signed_combination"]

# digits of the vectors that enter: enough to make a wrong relation long, few enough for float64
# orthogonalisation
_BITS = 30
_LARGEST = 56  # more vectors take long and show nothing
_DELTA = 0.99  # the usual constant of Lenstra, Lenstra and Lovász: shorter vectors for more swaps
_SWAPS = 60_000  # a limit on the time


def signed_combination(vectors: Array, total: Array) -> Array | None:
    """Signs s in {±1} with Σ s_j vectors_j = total (rows), or None when the reduction does not show them.

    >>> vectors = np.random.default_rng(0).standard_normal((12, 4))
    >>> signs = np.where(np.arange(12) % 3 == 0, -1.0, 1.0)
    >>> bool((signed_combination(vectors, signs @ vectors) == signs).all())
    True
    """
    J = len(vectors)
    if J > _LARGEST:
        return None
    scale = 2.0**_BITS / np.abs(vectors).max()
    basis = np.zeros((J + 1, J + 1 + vectors.shape[1]))
    basis[:, : J + 1] = np.eye(J + 1)
    basis[:J, J + 1 :] = np.rint(scale * vectors)
    basis[J, J + 1 :] = -np.rint(scale * total)
    for row in reduce_basis(basis):
        if (np.abs(row[: J + 1]) == 1.0).all():
            return np.asarray(row[:J] * row[J])
    return None


def reduce_basis(basis: Array) -> Array:
    """A reduced basis of the lattice of the rows (whole numbers below 2^53, kept exactly)."""
    B = basis.copy()
    n = len(B)
    Q, mu, norms = _orthogonalise(B)
    k, swaps = 1, 0
    while k < n and swaps < _SWAPS:
        _refresh(B, Q, mu, norms, k)
        for j in range(k - 1, -1, -1):
            q = np.rint(mu[k, j])
            if q != 0.0:
                B[k] -= q * B[j]
                mu[k, : j + 1] -= q * mu[j, : j + 1]
        if norms[k] >= (_DELTA - mu[k, k - 1] ** 2) * norms[k - 1]:
            k += 1
            continue
        B[[k - 1, k]] = B[[k, k - 1]]
        swaps += 1
        _refresh(B, Q, mu, norms, k - 1)
        _refresh(B, Q, mu, norms, k)
        k = max(k - 1, 1)
    return B


def _orthogonalise(B: Array) -> tuple[Array, Array, Array]:
    n = len(B)
    Q, mu, norms = np.zeros_like(B), np.eye(n), np.zeros(n)
    for k in range(n):
        _refresh(B, Q, mu, norms, k)
    return Q, mu, norms


def _refresh(B: Array, Q: Array, mu: Array, norms: Array, k: int) -> None:
    """Row k of the orthogonalisation anew from the whole numbers themselves, twice, so that rounding does not
    pile up."""
    mu[k, :k] = 0.0
    q = B[k].copy()
    for _ in range(2):
        part = np.where(norms[:k] > 0, (Q[:k] @ q) / np.where(norms[:k] > 0, norms[:k], 1.0), 0.0)
        mu[k, :k] += part
        q -= part @ Q[:k]
    Q[k], mu[k, k] = q, 1.0
    norms[k] = float(q @ q)
