"""Random pairs (a, b) at which one head has a moderate score and all others are saturated, on or off, as far
as they are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = [
    "PairSizes",
    "isolating_pairs",
    "mirrored",
    "moderate_pairs",
    "saturating_pairs",
    "switching_pairs",
]

_CHUNK = 48  # a's at a time: with a pool of b's for each, they stay in the processor's cache
_POOL = 64  # of these b's, one of the best sixteenth is taken
_SPREAD = 4  # of the shortest b's in the pool, one of so many is taken
_LONGER = (
    4.0  # times the shortest b: half of all directions, where one of the shortest is always nearly the same
)
_LEAST_SEEN = 0.5  # standard deviations of a·v below which some of v is added to a


@dataclass(frozen=True)
class PairSizes:
    """size: norm of every a. saturation: |score| from which on a head counts as saturated. biased: whether
    the last coordinate of b stands for the query bias, and is kept away from zero. even: whether b points
    everywhere, at the price of being longer.
    """

    size: float
    saturation: float
    biased: bool = False
    even: bool = False


def isolating_pairs(
    matrices: list[Array], head: int, v: Array, n: int, rng: np.random.Generator, sizes: PairSizes
) -> tuple[Array, Array]:
    """(A, B) with |aᵀW_h b| between 0.5 and 2 and |aᵀW_k b| at least `sizes.saturation` for all others; n
    rows each.

    Any number of heads, because others may be on as well as off. Of a pool of random b on the head's own
    plane, one of the shortest is taken, so that the score's rounding, which grows with |a||b|, stays small.
    a always sees the head's readout v.

    >>> rng = np.random.default_rng(0)
    >>> A, B = isolating_pairs([np.eye(3), np.ones((3, 3))], 0, np.ones(3), 5, rng, PairSizes(8.0, 20.0))
    >>> scores = np.einsum("ni,ni->n", A, B)
    >>> bool(np.all((np.abs(scores) < 2.01) & (np.abs(A.sum(1) * B.sum(1)) > 19.9)))
    True
    """
    firsts, lasts = [], []
    for start in range(0, n, _CHUNK):
        A = _rows_that_see(v, min(_CHUNK, n - start), rng, sizes.size)
        R = np.stack([A @ matrix for matrix in matrices])  # (K, n, columns)
        own = R[head]
        length = np.linalg.norm(own, axis=1)
        along = (rng.choice([-1.0, 1.0], len(A)) * rng.uniform(0.5, 2.0, len(A)) / length**2)[:, None] * own
        pool = _directions(_POOL, own.shape[1], sizes.biased, rng)
        inside = (own @ pool.T) / length[:, None] ** 2
        norms = np.sqrt(np.maximum(1.0 - inside**2 * length[:, None] ** 2, 1e-12))
        reach = np.full(inside.shape, 4.0) / length[:, None]
        for k in range(len(matrices)):
            if k == head:
                continue
            seen = np.abs(R[k] @ pool.T - inside * np.einsum("nc,nc->n", own, R[k])[:, None]) / norms
            shift = np.abs(np.einsum("nc,nc->n", along, R[k]))[:, None]
            with np.errstate(divide="ignore"):
                reach = np.maximum(reach, (sizes.saturation + shift) / seen)
        cost = reach
        if sizes.biased:
            last = np.abs(pool[:, -1] - inside * own[:, -1:]) / norms
            cost = reach * (1.0 + 0.05 / np.maximum(last, 1e-9))
        chosen = _one_of_the_shortest(cost, sizes.even, rng)
        rows = np.arange(len(A))
        free = (pool[chosen] - inside[rows, chosen][:, None] * own) / norms[rows, chosen][:, None]
        firsts.append(A)
        lasts.append(along + reach[rows, chosen][:, None] * free)
    return np.concatenate(firsts), np.concatenate(lasts)


def mirrored(matrix: Array, A: Array, B: Array) -> Array:
    """The same asking rows with the opposite score: what changes between the two is the head's own scale,
    free of everything else."""
    own = A @ matrix
    return np.asarray(
        B - (2.0 * np.einsum("nc,nc->n", own, B) / np.einsum("nc,nc->n", own, own))[:, None] * own
    )


def saturating_pairs(
    matrices: list[Array], n: int, rng: np.random.Generator, sizes: PairSizes
) -> tuple[Array, Array]:
    """(A, B) with every |aᵀW_k b| at least `sizes.saturation`."""
    d = matrices[0].shape[0]
    firsts, lasts = [], []
    for start in range(0, n, _CHUNK):
        A = rng.standard_normal((min(_CHUNK, n - start), d))
        A *= sizes.size / np.linalg.norm(A, axis=1)[:, None]
        pool = _directions(_POOL, matrices[0].shape[1], sizes.biased, rng)
        seen = np.min([np.abs(A @ matrix @ pool.T) for matrix in matrices], axis=0)
        worth = seen * np.minimum(1.0, 4 * np.abs(pool[:, -1])) if sizes.biased else seen
        rank = rng.integers(0, _SPREAD, len(A))
        chosen = np.argpartition(-worth, _SPREAD, axis=1)[np.arange(len(A)), rank]
        with np.errstate(divide="ignore"):
            firsts.append(A)
            lasts.append(pool[chosen] * (sizes.saturation / seen[np.arange(len(A)), chosen])[:, None])
    return np.concatenate(firsts), np.concatenate(lasts)


def moderate_pairs(
    matrices: list[Array], n: int, rng: np.random.Generator, *, size: float, biased: bool
) -> tuple[Array, Array]:
    """(A, B) with |a| = size and random b, so long that |aᵀW_k b| is about 0.5 to 2, each head k in turn."""
    d, columns = matrices[0].shape
    A = rng.standard_normal((n, d))
    A *= size / np.linalg.norm(A, axis=1)[:, None]
    B = _directions(n, columns, biased, rng)
    turn = np.arange(n) % len(matrices)
    scores = np.stack([np.einsum("qc,qc->q", A @ matrix, B) for matrix in matrices])
    usual = np.median(np.abs(scores), axis=1)[turn]
    return A, B * (rng.uniform(0.5, 2.0, n) / np.maximum(np.abs(scores[turn, np.arange(n)]), 0.3 * usual))[
        :, None
    ]


def switching_pairs(
    matrices: list[Array], head: int, v: Array, n: int, rng: np.random.Generator, sizes: PairSizes
) -> tuple[Array, Array]:
    """(A, B) with one head at ±saturation and the one nearest to it on the other side, however close the two
    are.

    >>> near = [np.eye(3), np.diag([1.0, 1.0, 1.001])]
    >>> A, B = switching_pairs(near, 0, np.ones(3), 4, np.random.default_rng(0), PairSizes(8.0, 40.0))
    >>> products = np.einsum("ni,ij,nj->n", A, near[0], B) * np.einsum("ni,ij,nj->n", A, near[1], B)
    >>> bool(np.all(products < -40.0**2 * 0.99))
    True
    """
    farther = replace(sizes, saturation=2 * sizes.saturation)
    A, B = isolating_pairs(matrices, head, v, n, rng, farther)
    scores = np.stack([np.einsum("qc,qc->q", A @ matrix, B) for matrix in matrices])
    own = A @ matrices[head]
    others = np.delete(scores, head, axis=0)
    side = -np.sign(others[np.abs(others).argmin(axis=0), np.arange(n)]) if len(others) else np.ones(n)
    return A, B + ((side * sizes.saturation - scores[head]) / np.einsum("qc,qc->q", own, own))[:, None] * own


def _one_of_the_shortest(cost: Array, even: bool, rng: np.random.Generator) -> NDArray[np.intp]:
    """A place in every row of these costs."""
    if even:
        near = cost <= _LONGER * cost.min(axis=1, keepdims=True)
        return np.asarray(np.argmax(near * rng.random(cost.shape), axis=1))
    rank = rng.integers(0, _SPREAD, len(cost))
    return np.asarray(np.argpartition(cost, _SPREAD, axis=1)[np.arange(len(cost)), rank])


def _rows_that_see(v: Array, n: int, rng: np.random.Generator, size: float) -> Array:
    """Random rows of one size, none of them nearly orthogonal to v."""
    direction = v / np.linalg.norm(v)
    A = rng.standard_normal((n, len(v)))
    seen = A @ direction
    more = np.where(seen >= 0, _LEAST_SEEN, -_LEAST_SEEN)
    A += np.where(np.abs(seen) < _LEAST_SEEN, more, 0.0)[:, None] * direction
    return np.asarray(A * (size / np.linalg.norm(A, axis=1))[:, None])


def _directions(n: int, columns: int, biased: bool, rng: np.random.Generator) -> Array:
    directions = rng.standard_normal((n, columns))
    if biased:
        directions[:, -1] += np.where(directions[:, -1] >= 0, 0.5, -0.5)
    return np.asarray(directions / np.linalg.norm(directions, axis=1)[:, None])
