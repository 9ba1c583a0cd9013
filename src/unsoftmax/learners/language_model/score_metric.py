"""How much changes of the queries and the key of one group of heads count in a fit, on average over prompts.

A score is z_nᵀ·Kᵀ·T(δ)·Q·z_last. Normed rows have the covariance 1, so a change counts as
Σ w(δ)·|Kᵀ·T(δ)·dQ + dKᵀ·T(δ)·Q|². In bases of the row spaces of Q and K, the parts of dQ and dK outside
them are free of everything else, and d_h×d_h matrices are coupled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve

__all__ = ["ScoreMetric"]

# of the mean of the diagonal, added to it: symmetries of a head change no score, and mixing planes that
# hardly turn changes them by a millionth
_FLOOR = 1e-10


class ScoreMetric:
    """query (heads, d_h, d), key (d_h, d); weights (heads, D), turns (D, d_h, d_h): of scores at all
    distances."""

    def __init__(self, query: Array, key: Array, weights: Array, turns: Array) -> None:
        self.heads, self.width = query.shape[:2]
        bases = [_row_space(each) for each in (*query, key)]
        self.spaces = [space for _, space in bases]  # (d_h, d), rows orthonormal; that of the key comes last
        inner = [inside for inside, _ in bases]
        size, eye = self.width**2, np.eye(self.width)
        self.coupled = np.zeros(((self.heads + 1) * size,) * 2)
        self.asked, self.offered = [], np.zeros((self.width, self.width))
        to_query = np.swapaxes(turns, 1, 2) @ inner[-1]  # (D, d_h, p)
        for h, weight in enumerate(weights):
            to_key = turns @ inner[h]  # (D, d_h, q)
            asked = np.einsum("n,nip,njp->ij", weight, to_query, to_query, optimize=True)
            self.asked.append(asked)
            self.offered += np.einsum("n,niq,njq->ij", weight, to_key, to_key, optimize=True)
            cross = np.einsum("n,nip,nkq->iqkp", weight, to_query, to_key, optimize=True).reshape(size, size)
            own = slice(h * size, (h + 1) * size)
            self.coupled[own, own] = np.kron(asked, eye)
            self.coupled[own, -size:], self.coupled[-size:, own] = cross, cross.T
        self.coupled[-size:, -size:] = np.kron(self.offered, eye)
        mean = float(np.trace(self.coupled)) / len(self.coupled)
        self.floor = _FLOOR * mean or 1.0  # where no score counts, any positive number serves
        # of the drift X, which adds δ·kᵀ·X·q/√d_h: a Kronecker product of what keys and queries are
        far = (weights * np.arange(weights.shape[1]) ** 2).sum(axis=1) / self.width
        self.keys = key @ key.T
        self.queries = np.einsum("h,hij,hkj->ik", far, query, query)

    @property
    def query_squares(self) -> Array:
        """A number for every row of the queries."""
        return np.concatenate([np.diag(each) for each in self.asked])

    @property
    def key_squares(self) -> Array:
        """A number for every row of the key."""
        return np.diag(self.offered)

    @property
    def drift_squares(self) -> Array:
        """A number for every entry of the drift."""
        return np.outer(np.diag(self.keys), np.diag(self.queries)).ravel()

    def inverse(self, damping: float) -> Callable[[Array, Array], tuple[Array, Array]]:
        """The inverse for queries and key together."""
        added = self.floor + damping
        coupled = cho_factor(self.coupled + added * np.eye(len(self.coupled)))
        outside = [np.linalg.inv(each + added * np.eye(self.width)) for each in (*self.asked, self.offered)]

        def solve(query: Array, key: Array) -> tuple[Array, Array]:
            rows = [*query, key]
            inside = [each @ space.T for each, space in zip(rows, self.spaces, strict=True)]
            solved = cho_solve(coupled, np.concatenate([each.ravel() for each in inside]))
            solved = solved.reshape(-1, self.width, self.width)
            out = [
                new @ space + free @ (row - old @ space)
                for row, old, new, space, free in zip(rows, inside, solved, self.spaces, outside, strict=True)
            ]
            return np.array(out[:-1]), out[-1]

        return solve

    def drift_inverse(self, damping: float) -> Callable[[Array], Array]:
        """The inverse for the drift alone."""
        (left, u), (right, v) = np.linalg.eigh(self.keys), np.linalg.eigh(self.queries)
        values = np.outer(left, right)
        values = values + damping + (_FLOOR * float(values.mean()) or 1.0)
        return lambda drift: np.asarray(u @ ((u.T @ drift @ v) / values) @ v.T)


def _row_space(matrix: Array) -> tuple[Array, Array]:
    """(inside, space) with matrix = inside·space and orthonormal rows of `space`."""
    left, sizes, space = np.linalg.svd(matrix, full_matrices=False)
    return left * sizes, space
