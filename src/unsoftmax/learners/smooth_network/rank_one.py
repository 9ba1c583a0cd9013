"""Rank-one elements x xᵀ of a linear space of quadratic forms, by the subspace power method."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["as_forms", "as_vectors", "climb", "find_rank_one", "products", "starts"]

_ROUNDS = 40
_ITERATIONS = 400
_SHIFT = 0.3  # of the identity, which keeps the iteration from overshooting
_SAME = 0.999  # |cosine| from which two vectors are one


def as_vectors(forms: Array) -> Array:
    """Symmetric (..., q, q) as vectors (..., q(q + 1)/2) with the same inner products."""
    i, j = np.triu_indices(forms.shape[-1])
    return np.asarray(forms[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def as_forms(vectors: Array, q: int) -> Array:
    """The inverse of `as_vectors`."""
    i, j = np.triu_indices(q)
    entries = vectors * np.where(i == j, 1.0, np.sqrt(0.5))
    forms = np.zeros((*vectors.shape[:-1], q, q))
    forms[..., i, j] = entries
    forms[..., j, i] = entries
    return forms


def products(x: Array, y: Array) -> Array:
    """(x yᵀ + y xᵀ)/2 of rows (..., q), as vectors."""
    i, j = np.triu_indices(x.shape[-1])
    return np.asarray(
        0.5 * (x[..., i] * y[..., j] + x[..., j] * y[..., i]) * np.where(i == j, 1.0, np.sqrt(2.0))
    )


def find_rank_one(
    space: Array, q: int, wanted: int, rng: np.random.Generator, *, defect: float = 1e-6
) -> Array:
    """Unit vectors x (found, q) with x xᵀ in the span of the orthonormal columns of `space` (q(q + 1)/2, n),
    up to `defect`.

    Ends when `wanted` are found, or after a fixed number of rounds: the caller counts. From the moment that
    half are found, starts come from what the found ones leave of the space, while the iteration still sees
    all of it.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.linalg.qr(rng.standard_normal((4, 4)))[0][:3]
    >>> space = np.linalg.qr(products(truth, truth).T)[0]
    >>> bool(np.allclose(np.sort(np.abs(find_rank_one(space, 4, 3, rng) @ truth.T).max(axis=0)), 1.0))
    True
    """
    found = np.empty((0, q))
    for _ in range(_ROUNDS):
        half = 2 * len(found) >= wanted
        count = max(8, min(2 * wanted + 8, 256, 6 * (wanted - len(found)) if half else 256))
        x = climb(space, starts(space, q, products(found, found) if half else None, count, rng))
        inside = (products(x, x) @ space) ** 2
        for candidate in x[inside.sum(axis=1) > 1.0 - defect]:
            if not len(found) or np.abs(found @ candidate).max() < _SAME:
                found = np.vstack([found, candidate])
        if len(found) >= wanted:
            break
    return found


def starts(space: Array, q: int, taken: Array | None, count: int, rng: np.random.Generator) -> Array:
    """Unit vectors (count, q) to climb from: random, or the strongest of random forms of the space that are
    free of `taken`."""
    if taken is None or not len(taken):
        x = rng.standard_normal((count, q))
        return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))
    known = np.linalg.qr((taken @ space).T)[0]
    mixes = rng.standard_normal((count, space.shape[1]))
    mixes -= (mixes @ known) @ known.T
    values, vectors = np.linalg.eigh(as_forms(mixes @ space.T, q))
    return np.asarray(vectors[np.arange(count), :, np.abs(values).argmax(axis=1)])


def climb(space: Array, x: Array, iterations: int = _ITERATIONS) -> Array:
    """x <- (projection of x xᵀ on the space) x + shift·x, normalised, until it stands."""
    q = x.shape[1]
    for _ in range(iterations):
        inside = as_forms((products(x, x) @ space) @ space.T, q)
        moved = np.einsum("sij,sj->si", inside, x) + _SHIFT * x
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        change = float(np.abs(moved - x).max())
        x = moved
        if change < 1e-10:
            break
    return x
