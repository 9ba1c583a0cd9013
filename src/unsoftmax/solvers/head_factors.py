"""All heads as factors, the unknowns of a joint fit: scores of head h are (K_h x_i)·(Q_h [x_N; 1])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["HeadFactors", "truncated"]


@dataclass(frozen=True)
class HeadFactors:
    """K (H, r, d), Q (H, r, d+1) with the query bias as last column, v (H, d), and the constant c.

    ranks: of every head. Rows of K and Q beyond them are zero, and a fit leaves them there.
    """

    K: Array
    Q: Array
    v: Array
    c: float
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, matrices: Sequence[Array], v: Array, c: float, ranks: Sequence[int]) -> Self:
        """From matrices [W w0] (d, d+1), cut to these ranks.

        >>> heads = HeadFactors.of([np.ones((2, 3)), np.eye(2, 3)], np.ones((2, 2)), 0.5, [1, 2])
        >>> heads.unknowns, heads.parameters, heads.gauge
        (25, 15, 10)
        """
        d, top = matrices[0].shape[0], max(ranks)
        K, Q = np.zeros((len(ranks), top, d)), np.zeros((len(ranks), top, d + 1))
        for h, (matrix, rank) in enumerate(zip(matrices, ranks, strict=True)):
            K[h, :rank], Q[h, :rank] = truncated(matrix, rank)
        return cls(K, Q, np.array(v, dtype=np.float64), float(c), tuple(ranks))

    @property
    def heads(self) -> int:
        return len(self.v)

    @property
    def width(self) -> int:
        return int(self.v.shape[1])

    @property
    def per_head(self) -> int:
        """Unknowns of a head: K, Q, v."""
        return int(self.K[0].size + self.Q[0].size + self.width)

    @property
    def unknowns(self) -> int:
        return self.heads * self.per_head + 1

    @property
    def parameters(self) -> int:
        """Degrees of freedom: rank-r matrices (d, d+1), readouts, the constant."""
        d = self.width
        return sum(r * (2 * d + 1 - r) + d for r in self.ranks) + 1

    @property
    def gauge(self) -> int:
        """Directions of the unknowns that change no answer."""
        return self.unknowns - self.parameters

    @property
    def matrices(self) -> Array:
        """[W w0] of every head, (H, d, d+1)."""
        return np.asarray(np.einsum("hrd,hre->hde", self.K, self.Q))

    def balanced(self) -> Self:
        """The same scores from factors of equal size, which keeps the fit well scaled."""
        return self.cut(self.ranks)

    def cut(self, ranks: Sequence[int]) -> Self:
        """The nearest matrices of these ranks."""
        return type(self).of(list(self.matrices), self.v, self.c, ranks)

    def split(self, step: Array) -> tuple[Array, Array, Array, float]:
        """A flat step as changes of (K, Q, v, c). Head by head: K, Q, v; c comes last."""
        H, r, d = self.K.shape
        parts = step[:-1].reshape(H, self.per_head)
        K, Q = parts[:, : r * d].reshape(H, r, d), parts[:, r * d : r * (2 * d + 1)].reshape(H, r, d + 1)
        return K, Q, parts[:, r * (2 * d + 1) :], float(step[-1])

    def joined(self, K: Array, Q: Array, v: Array, c: float) -> Array:
        """The inverse of `split`."""
        H = self.heads
        parts = np.concatenate([K.reshape(H, -1), Q.reshape(H, -1), v], axis=1)
        return np.append(parts.ravel(), c)

    def moved(self, step: Array) -> Self:
        K, Q, v, c = self.split(step)
        return replace(self, K=self.K + K, Q=self.Q + Q, v=self.v + v, c=self.c + c)

    def matrix_changes(self, step: Array) -> Array:
        """First-order changes of [W w0], (H, d, d+1): a step along the gauge changes nothing."""
        K, Q, _, _ = self.split(step)
        return np.asarray(np.einsum("hrd,hre->hde", K, self.Q) + np.einsum("hrd,hre->hde", self.K, Q))

    def scores(self, head: int, A: Array, B: Array) -> Array:
        """aᵀ(W b + w0) for every row of A and of B, (len(A), len(B))."""
        return np.asarray((A @ self.K[head].T) @ (self.Q[head] @ with_one(B).T))


def with_one(B: Array) -> Array:
    """Rows with a one at the end, on which the query bias acts."""
    return np.column_stack([B, np.ones(len(B))])


def truncated(matrix: Array, rank: int) -> tuple[Array, Array]:
    """Factors (r, d) and (r, e) of equal size whose product KᵀQ is the nearest matrix of this rank."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    root = np.sqrt(values[:rank])
    return np.asarray((left[:, :rank] * root).T), np.asarray(root[:, None] * right[:rank])
