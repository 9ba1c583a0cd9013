"""Queries, keys and the rotary base from score matrices at several distances: K(Δ) = keyᵀ·R(Δ)·query/√d_h.

Heads of one group share their key. In the row space of the key, K(2)·K(1)⁺ is similar to R(1): its
eigenvalues are exp(±iθ_j), and its eigenvectors are the rotary planes, each up to one complex factor, which
changes nothing. Planes that turn too little for that are told apart at a larger distance, inside the space
that the others leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["KeySpace", "RotaryFactors", "factor_scores", "group_by_rows"]

_USUAL_BASE = float(np.log(10_000.0))  # where no plane but the first is seen to turn
_SHARED = 0.9  # mean squared cosine between row spaces: one group above it; unrelated spaces have d_h/d


@dataclass(frozen=True, eq=False)
class RotaryFactors:
    """key (d_h, d). queries: one (d_h, d) a head, 1/√d_h not included in them. log_theta: of the base, and
    how much it counts, because planes that hardly turn tell little."""

    key: Array
    queries: list[Array]
    log_theta: float
    weight: float


@dataclass(frozen=True, eq=False)
class KeySpace:
    """basis (d, d_h): of the rows of a group's key. near, far: K(1) and K(2) of its heads side by side, in
    that basis."""

    basis: Array
    near: Array
    far: Array

    @classmethod
    def of(cls, near: list[Array], far: list[Array], rank: int) -> KeySpace:
        """near, far: K(1) and K(2) of the heads of one group, d_h = rank, in units where the score is
        rowᵀ·K·row."""
        joined = np.concatenate([*near, *far], axis=1)
        space = np.linalg.svd(joined, full_matrices=False)[0][:, :rank]
        return cls(space, space.T @ np.concatenate(near, axis=1), space.T @ np.concatenate(far, axis=1))


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


def factor_scores(keys: KeySpace, further: Array, gap: int, slow: float) -> RotaryFactors:
    """further: K(1 + gap), as the score matrices of `keys`. slow: radians below which a plane counts as not
    told apart."""
    rank = keys.basis.shape[1]
    half = rank // 2
    planes, angles = _planes_of(_turn(keys.near, keys.far), slow)
    weights = angles**2
    if len(angles) < half:
        rest = _rest(_turn(keys.near, keys.far), half - len(angles))
        inside = np.linalg.pinv(rest) @ _turn(keys.near, further) @ rest
        slower, turned = _planes_of(inside, slow)
        planes = np.column_stack([planes, rest @ slower])
        angles, weights = np.append(angles, turned / gap), np.append(weights, turned**2)
        if left := half - len(angles):
            slowest = _rest(inside, left)
            within = np.linalg.pinv(slowest) @ inside @ slowest
            planes = np.column_stack([planes, rest @ slowest @ _likely_planes(within)])
    log_theta, weight = _base(angles, weights, half)
    frequencies = np.exp(-log_theta * np.arange(half) / half)
    mixed = np.column_stack([planes.real, -planes.imag])  # R(1) turns coordinate j towards j + d_h/2
    key = (keys.basis @ mixed).T
    queries = np.sqrt(rank) * _rotation(frequencies, -1.0) @ np.linalg.lstsq(mixed, keys.near, rcond=None)[0]
    width = key.shape[1]
    split = [queries[:, h : h + width] for h in range(0, queries.shape[1], width)]
    return RotaryFactors(*_balanced(key, split), log_theta, weight)


def _turn(near: Array, far: Array) -> Array:
    return np.asarray(np.linalg.lstsq(near.T, far.T, rcond=None)[0].T)


def _planes_of(turn: Array, slow: float) -> tuple[Array, Array]:
    """Eigenvectors, one of every conjugate pair, and angles of the planes that turn by more than `slow`,
    fastest first."""
    values, vectors = np.linalg.eig(turn)
    angles = np.angle(values)
    fast = np.flatnonzero((values.imag > 0.0) & (angles > slow))
    order = fast[np.argsort(-angles[fast])]
    return vectors[:, order].astype(complex), angles[order]


def _likely_planes(turn: Array) -> Array:
    """Planes of a matrix that turns too little to tell them apart: those of its antisymmetric part, which at
    least tell in which sense they turn. A plane of the wrong sense would be a dead end of a fit."""
    values, vectors = np.linalg.eig((turn - turn.T) / 2.0)
    return np.asarray(vectors[:, np.argsort(-values.imag)[: len(turn) // 2]])


def _rest(turn: Array, count: int) -> Array:
    """A basis of the invariant space of the `count` slowest planes, (n, 2·count)."""
    values, vectors = np.linalg.eig(turn)
    kept = vectors[:, np.argsort(np.abs(np.angle(values)), kind="stable")[: 2 * count]]
    return np.linalg.svd(np.column_stack([kept.real, kept.imag]), full_matrices=False)[0][:, : 2 * count]


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


def _base(angles: Array, weights: Array, half: int) -> tuple[float, float]:
    """log theta of θ_j = theta^(-j/half), from the planes after the first, whose θ is one, and its weight.

    >>> round(float(_base(np.array([1.0, 0.1]), np.ones(2), 2)[0] / np.log(100.0)), 9)
    1.0
    """
    if len(angles) < 2:
        return _USUAL_BASE, 0.0  # one plane turns by one radian a row whatever the base is
    j = np.arange(1, len(angles)) / half
    weight = float((weights[1:] * j * j).sum())
    return float(-(weights[1:] * j * np.log(angles[1:])).sum() / weight), weight
