"""The finest common block structure of symmetric matrices: orthogonal subspaces that none of them mixes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["common_blocks"]

# of the largest matrix: a hundred times the error of second differences, about 1e-7 (Appendix C)
_TOLERANCE = 1e-5


def common_blocks(matrices: Array, rng: np.random.Generator) -> list[Array]:
    """Orthonormal bases (d, k) of the finest subspaces that all symmetric `matrices` (n, d, d) keep, without
    what all of them annihilate.

    A generic symmetric Z that commutes with all of them has these subspaces as its eigenspaces. Z comes from
    the null space of Z -> (Z H - H Z), so the cost grows like d⁶: meant for small d.

    >>> H = np.array([np.diag([1.0, 2.0, 0.0]), [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]])
    >>> sorted(block.shape[1] for block in common_blocks(H, np.random.default_rng(0)))
    [1, 2]
    """
    size = float(np.max(np.linalg.norm(matrices, axis=(1, 2))))
    if size == 0.0:
        return []
    energy, basis = np.linalg.eigh(np.einsum("nij,njk->ik", matrices, matrices))
    alive = basis[:, energy > (_TOLERANCE * size) ** 2]
    inner = np.einsum("ia,nij,jb->nab", alive, matrices, alive) / size
    k = alive.shape[1]
    rows, columns = np.triu_indices(k)
    units = np.zeros((len(rows), k, k))
    units[np.arange(len(rows)), rows, columns] = 1.0
    units[np.arange(len(rows)), columns, rows] = 1.0
    mixed = np.einsum("pab,nbc->npac", units, inner) - np.einsum("nab,pbc->npac", inner, units)
    system = mixed.transpose(0, 2, 3, 1).reshape(-1, len(rows))
    values, vectors = np.linalg.eigh(system.T @ system)
    free = vectors[:, np.sqrt(np.maximum(values, 0.0)) < _TOLERANCE * np.sqrt(values.max())]
    Z = np.einsum("p,pab->ab", free @ rng.standard_normal(free.shape[1]), units)
    eigenvalues, eigenvectors = np.linalg.eigh(Z)
    spread = max(float(eigenvalues[-1] - eigenvalues[0]), 1e-300)
    cuts = [0, *(i + 1 for i, (x, y) in enumerate(pairwise(eigenvalues)) if y - x > 1e-3 * spread), k]
    return [alive @ eigenvectors[:, x:y] for x, y in pairwise(cuts)]
