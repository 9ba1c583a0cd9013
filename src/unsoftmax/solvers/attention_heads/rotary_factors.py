"""Queries, keys and the rotary base from score matrices at two distances: K(Δ) = keyᵀ·R(Δ)·query/√d_h.

Heads of one group share their key. In the row space of the key, K(2)·K(1)⁺ is similar to R(1): its
eigenvalues are exp(±iθ_j), and
its eigenvectors are the rotary planes, each up to one complex factor, which changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["RotaryFactors", "factor_scores", "group_by_rows", "rotary_base"]

_SHARED = 0.9  # mean squared cosine between row spaces: one group above it; unrelated spaces have d_h/d


@dataclass(frozen=True, eq=False)
class RotaryFactors:
    """key (d_h, d). queries: one (d_h, d) a head, 1/√d_h not included in them. frequencies: θ_j as measured,
    descending."""

    key: Array
    queries: list[Array]
    frequencies: Array


def group_by_rows(matrices: Array, rank: int) -> list[list[int]]:
    """Heads (H, d, d) whose matrices have one row space of dimension `rank`."""
    spaces = [np.linalg.svd(matrix)[2][:rank] for matrix in matrices]
    left, groups = list(range(len(matrices))), []
    while left:
        first = left[0]
        own = [h for h in left if np.linalg.norm(spaces[first] @ spaces[h].T) ** 2 > _SHARED * rank]
        groups.append(own)
        left = [h for h in left if h not in own]
    return groups


def factor_scores(near: list[Array], far: list[Array], rank: int) -> RotaryFactors:
    """near, far: K(1) and K(2) of the heads of one group, d_h = rank, in units where the score is
    rowᵀ·K·row."""
    joined = np.concatenate([*near, *far], axis=1)
    space = np.linalg.svd(joined, full_matrices=False)[0][:, :rank]
    first, second = space.T @ np.concatenate(near, axis=1), space.T @ np.concatenate(far, axis=1)
    turn = np.linalg.lstsq(first.T, second.T, rcond=None)[0].T
    values, vectors = np.linalg.eig(turn)
    order = np.argsort(-np.angle(values))[: rank // 2]  # one of every conjugate pair, fastest plane first
    planes = vectors[:, order]
    mixed = np.column_stack([planes.real, -planes.imag])  # R(1) turns coordinate j towards j + d_h/2
    key = (space @ mixed).T
    back = _rotation(np.angle(values[order]), -1.0)
    queries = np.sqrt(rank) * back @ np.linalg.solve(mixed, first)
    width = key.shape[1]
    split = [queries[:, h * width : (h + 1) * width] for h in range(len(near))]
    return RotaryFactors(*_balanced(key, split), np.abs(np.angle(values[order])))


def _balanced(key: Array, queries: list[Array]) -> tuple[Array, list[Array]]:
    """Keys and queries of every plane in equal sizes."""
    half = len(key) // 2
    sizes = [
        np.sqrt(sum(np.linalg.norm(part[[j, j + half]]) ** 2 for part in parts))
        for parts in ([key], queries)
        for j in range(half)
    ]
    factor = np.tile(np.sqrt(np.array(sizes[half:]) / np.array(sizes[:half])), 2)[:, None]
    return key * factor, [query / factor for query in queries]


def _rotation(angles: Array, rows: float) -> Array:
    """R of a number of rows, as it turns queries relative to keys."""
    half = len(angles)
    cos, sin = np.cos(rows * angles), np.sin(rows * angles)
    out = np.zeros((2 * half, 2 * half))
    i = np.arange(half)
    out[i, i] = out[i + half, i + half] = cos
    out[i, i + half], out[i + half, i] = -sin, sin
    return out


def rotary_base(frequencies: Array, rank: int) -> float:
    """theta of θ_j = theta^(-2j/d_h), from the planes after the first, whose θ is one; each weighted by its
    θ.

    >>> round(rotary_base(np.array([1.0, 0.1]), 4), 6)
    100.0
    """
    half = rank // 2
    if half < 2:
        return 10_000.0  # one plane turns by one radian a row whatever the base is
    j = np.arange(1, half)
    logs = np.log(np.maximum(frequencies[1:half], 1e-12))
    weights = frequencies[1:half] ** 2
    slope = float((weights * j * logs).sum() / (weights * j * j).sum())
    return float(np.exp(-slope * rank / 2.0))
