"""Rank-one elements x xᵀ of a linear space of quadratic forms: by the subspace power method, by a pencil of
two forms where there are few, and to all digits by Gauss-Newton steps."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["as_forms", "as_vectors", "climb", "find_rank_one", "products", "starts"]

_ROUNDS = 40  # of starts, at most, until all directions are found
_ITERATIONS = 400  # of the power method, at most
_SHIFT = 0.3  # of the identity, which keeps the iteration from overshooting
# |cosine| from which two vectors are one: 0.0026 degrees, while Gauss-Newton steps bring all starts of one
# solution together to 1e-11 and less where answers are exact
_SAME = 1.0 - 1e-9
_STEPS = 8  # of Gauss-Newton: the power method ends within a few degrees, and every step squares the error
_AT_ONCE = 1 << 22  # entries of the largest array in these steps


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
    all of it. The first starts are those of a pencil, which tells directions apart that are nearly parallel.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.linalg.qr(rng.standard_normal((4, 4)))[0][:3]
    >>> space = np.linalg.qr(products(truth, truth).T)[0]
    >>> bool(np.allclose(np.sort(np.abs(find_rank_one(space, 4, 3, rng) @ truth.T).max(axis=0)), 1.0))
    True
    """
    found = np.empty((0, q))
    for turn in range(_ROUNDS + 1):
        half = 2 * len(found) >= wanted
        count = max(8, min(2 * wanted + 8, 256, 6 * (wanted - len(found)) if half else 256))
        if turn == 0:
            x = _of_a_pencil(space, q, rng)
        else:
            x = climb(space, starts(space, q, products(found, found) if half else None, count, rng))
        x = _sharpened(space, x)
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


def _of_a_pencil(space: Array, q: int, rng: np.random.Generator) -> Array:
    """Unit vectors (n, q), as many as the space has dimensions: where n <= q all its forms are D diag Dᵀ with
    the same D, whose columns are eigenvectors of one form over another. Nothing where n > q."""
    n = space.shape[1]
    if not 0 < n <= q:
        return np.empty((0, q))
    forms = as_forms(space.T, q)
    span = np.linalg.svd(forms.transpose(1, 0, 2).reshape(q, -1), full_matrices=False)[0][:, :n]
    first, second = np.einsum("ra,aij->rij", rng.standard_normal((2, n)), forms)
    ratio = np.linalg.lstsq(span.T @ second @ span, span.T @ first @ span, rcond=None)[0]
    x = np.real(span @ np.linalg.eig(ratio.T)[1]).T
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))


def _sharpened(space: Array, x: Array) -> Array:
    """Gauss-Newton steps for what the space leaves of x xᵀ; of every x (n, q), the nearest on its way.

    With T_a = F_a x of the forms F_a of the space, the gradient is 2(x - TᵀT x), and the matrix of the normal
    equations 2(1 + x xᵀ) - 4 TᵀT, which leaves the size of x free.
    """
    q, n = x.shape[1], space.shape[1]
    forms = as_forms(space.T, q).reshape(n * q, q)
    best = x.copy()
    for begin in range(0, len(x), part := max(1, _AT_ONCE // max(1, n * q))):
        now = x[begin : begin + part]
        nearest = np.full(len(now), np.inf)
        for step in range(_STEPS + 1):
            T = (now @ forms.T).reshape(-1, n, q)
            along = np.einsum("saq,sq->sa", T, now)
            gradient = 2.0 * (now - np.einsum("saq,sa->sq", T, along))
            left = 1.0 - np.square(along).sum(axis=1)
            better = left < nearest
            best[begin : begin + part][better], nearest[better] = now[better], left[better]
            if step == _STEPS:
                break
            outer = now[:, :, None] * now[:, None]
            normal = 2.0 * np.eye(q) + 6.0 * outer - 4.0 * np.einsum("sap,saq->spq", T, T)
            normal += 1e-12 * np.eye(q)
            moved = now - np.linalg.solve(normal, gradient[..., None])[..., 0]
            now = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-300)
    return best
