"""Heads told apart without saturation: a row sent n times changes every head's weight σ to nσ/(1 + (n-1)σ).

With f¹ = Σ σ_h u_h and fⁿ the same with n copies, every row α of the unmixing matrix (α·f¹ = σ_h) satisfies
(n-1)(α·fⁿ)(α·f¹) + α·fⁿ - n α·f¹ = 0, which is linear in (ααᵀ, α). Many asking rows leave a null space of
dimension H, and an eigenproblem takes it apart. Rows stay small, so it serves targets with bounded inputs; it
needs independent u_h = V_hᵀa.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import DependentOutputs, Restart
from unsoftmax.learners.vector_answers.plateau_rows import Separation
from unsoftmax.learners.vector_answers.row_answers import VectorResponses

__all__ = ["common_vectors", "lift", "separate_by_copies"]

_COPIES = (3, 8)  # counts far from one and from each other, so that their odds tell heads apart
_SPARE = 12  # equations beyond the unknowns of the products of heads
_MOVE = 0.3  # how far the base row moves, as a part of its size
_SHARE = 1.0 / (2.0 + _MOVE)  # of the longest row allowed, for either row: their sum is sent, one moved
_RANK = 1e-8  # of the largest singular value: rounding leaves 1e-13
_MOST_HEADS = 16  # 136 products of two heads: a limit on what is paid


def lift(
    once: Array, often: Array, copies: Array, heads: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(U (H, m), weights (J, H)) from responses to one row (J, m) and to `copies` (J,) of it.

    >>> rng = np.random.default_rng(0)
    >>> U, s = rng.standard_normal((2, 5)), rng.uniform(0.1, 0.9, (20, 2))
    >>> n = np.full(20, 4.0)
    >>> found, weights = lift(s @ U, (4 * s / (1 + 3 * s)) @ U, n, 2, rng)
    >>> bool(min(np.abs(found - U).max(), np.abs(found - U[::-1]).max()) < 1e-9)
    True
    """
    right = np.linalg.svd(np.vstack([once, often]), full_matrices=False)[2][:heads]
    size = np.sqrt(np.mean((np.vstack([once, often]) @ right.T) ** 2, axis=0))
    f1, fn = once @ right.T / size, often @ right.T / size
    i, j = np.triu_indices(heads)
    products = np.einsum("qi,qj->qij", fn, f1)
    products = products + products.transpose(0, 2, 1)
    quadratic = (copies - 1)[:, None] * np.where(i == j, 0.5, 1.0) * products[:, i, j]
    system = np.hstack([quadratic, fn - copies[:, None] * f1])
    scale = np.linalg.norm(system, axis=0)
    null = np.linalg.svd(system / scale, full_matrices=True)[2][-heads:] / scale
    forms = np.zeros((heads, heads, heads))
    forms[:, i, j] = null[:, : len(i)]
    forms[:, j, i] = null[:, : len(i)]
    rows = []
    for x in common_vectors(forms, rng):
        square, plain = (copies - 1) * (fn @ x) * (f1 @ x), fn @ x - copies * (f1 @ x)
        rows.append(-float(square @ plain) / float(square @ square) * x)
    unmix = np.array(rows)
    return np.linalg.inv(unmix).T * size @ right, f1 @ unmix.T


def common_vectors(forms: Array, rng: np.random.Generator) -> Array:
    """(H, H): rows α_h, up to their sizes, of symmetric forms (H, H, H) that are all sums of the same
    products α_hα_hᵀ."""
    heads = len(forms)
    best: tuple[float, Array] | None = None
    for _ in range(12):
        first, second = (np.tensordot(rng.standard_normal(heads), forms, 1) for _ in range(2))
        values, vectors = np.linalg.eig(first @ np.linalg.pinv(second))
        if np.abs(values.imag).max() > 1e-6 * np.abs(values).max():
            continue
        gaps = np.abs(values.real[:, None] - values.real)
        np.fill_diagonal(gaps, np.inf)
        gap = float(gaps.min()) / float(np.abs(values).max()) if heads > 1 else 1.0
        if best is None or gap > best[0]:
            best = (gap, vectors.real)
    if best is None:
        raise Restart("copies of rows do not take the heads apart")
    return np.asarray(best[1].T)


def separate_by_copies(respond: VectorResponses, rng: np.random.Generator) -> Separation:
    """T_h of every head, from moderate rows alone; about (r + 1)(H² + 3H + 24) queries."""
    d = respond.width
    asking = 2.0**4 if respond.asker.input_bound is None else _SHARE * respond.asker.input_bound
    size = _moderate_size(respond, asking, rng)
    a = _unit(rng, d) * size
    count = 8
    B = np.empty((0, d))
    once = often = np.empty((0, len(respond.c)))
    copies = np.empty(0)
    while True:  # more asking rows until they outnumber the unknowns of the heads that they show
        fresh = np.array([_unit(rng, d) * asking for _ in range(count)])
        number = np.where(np.arange(count) % 2 == 0, _COPIES[0], _COPIES[1]).astype(float)
        B, copies = np.vstack([B, fresh]), np.append(copies, number)
        f1, fn = _both(respond, a, fresh, number)
        once, often = np.vstack([once, f1]), np.vstack([often, fn])
        values = np.linalg.svd(np.vstack([once, often]), compute_uv=False)
        heads = int((values > _RANK * values[0]).sum())
        if heads > _MOST_HEADS:
            raise Restart(f"more than {_MOST_HEADS} heads, or no heads at all, answer to copies of rows")
        count = heads * (heads + 1) // 2 + heads + _SPARE - len(B)
        if count <= 0:
            break
    base, weights = lift(once, often, copies, heads, rng)
    scores = np.log(np.clip(weights, 1e-9, 1 - 1e-9) / (1 - np.clip(weights, 1e-9, 1 - 1e-9)))
    seen = [[u] for u in base]
    for direction in np.linalg.qr(rng.standard_normal((d, d)))[0].T:
        moved = a + _MOVE * size * direction
        U, weights = lift(*_both(respond, moved, B, copies), copies, heads, rng)
        there = np.log(np.clip(weights, 1e-9, 1 - 1e-9) / (1 - np.clip(weights, 1e-9, 1 - 1e-9)))
        order = _match(scores, there)
        for h in range(heads):
            seen[h].append((U[order[h]] - base[h]) / _MOVE)
        ranks = [_rank(np.array(vectors)) for vectors in seen]
        if max(ranks) < len(seen[0]):
            break
    if sum(ranks) > len(respond.c):
        raise DependentOutputs(
            f"the heads' outputs have {sum(ranks)} dimensions in all, and an answer only {len(respond.c)}"
        )
    return Separation(
        [
            np.linalg.svd(np.array(vectors), full_matrices=False)[2][:rank].T
            for vectors, rank in zip(seen, ranks, strict=True)
        ]
    )


def _both(respond: VectorResponses, a: Array, B: Array, copies: Array) -> tuple[Array, Array]:
    once = respond(a[None], B)
    often = np.empty_like(once)
    for n in np.unique(copies):
        members = copies == n
        often[members] = respond(np.repeat(a[None], int(n), axis=0), B[members])
    return once, often


def _moderate_size(respond: VectorResponses, asking: float, rng: np.random.Generator) -> float:
    """Size of the first row at which the weights move away from one half, but not to the ends."""
    bound = respond.asker.input_bound
    largest = 2.0**12 if bound is None else _SHARE * bound
    sizes = largest * 2.0 ** -np.arange(0.0, 24.0)
    moved = []
    for size in sizes:
        A, B = (np.array([_unit(rng, respond.width) for _ in range(2)]) * length for length in (size, asking))
        half = A @ respond.V / 2
        moved.append(float(np.linalg.norm(respond(A[:, None], B) - half) / np.linalg.norm(half)))
    wanted = [i for i, change in enumerate(moved) if change < 0.5]
    return float(sizes[wanted[0]] if wanted else sizes[-1])


def _match(scores: Array, others: Array) -> list[int]:
    from scipy.optimize import linear_sum_assignment

    distance = np.linalg.norm(scores.T[:, None] - others.T[None], axis=2)
    return [int(k) for k in linear_sum_assignment(distance)[1]]


def _rank(vectors: Array) -> int:
    values = np.linalg.svd(vectors, compute_uv=False)
    return int((values > 1e-5 * values[0]).sum())


def _unit(rng: np.random.Generator, d: int) -> Array:
    x = rng.standard_normal(d)
    return np.asarray(x / np.linalg.norm(x))
