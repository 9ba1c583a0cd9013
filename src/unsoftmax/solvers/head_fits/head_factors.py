"""All heads as factors, the unknowns of a joint fit: scores of head h are (K_h x_i)·(Q_h [x_N; 1])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from unsoftmax.arrays import Array

__all__ = ["HeadFactors", "ScoreFactors", "balanced_factors", "spectrum", "stacked", "with_one"]


@dataclass(frozen=True)
class ScoreFactors:
    """K (H, r, d), Q (H, r, d+1) with the query bias as last column.

    ranks: of every head. Rows of K and Q beyond them are zero, and a fit leaves them there.
    """

    K: Array
    Q: Array
    ranks: tuple[int, ...]

    @property
    def heads(self) -> int:
        return len(self.K)

    @property
    def width(self) -> int:
        return int(self.K.shape[2])

    @property
    def score_parameters(self) -> int:
        """Degrees of freedom of rank-r matrices (d, d+1)."""
        return sum(r * (2 * self.width + 1 - r) for r in self.ranks)

    @property
    def matrices(self) -> Array:
        """[W w0] of every head, (H, d, d+1)."""
        return np.asarray(np.einsum("hrd,hre->hde", self.K, self.Q))

    @property
    def spectra(self) -> list[Array]:
        """Singular values of [W w0] of every head."""
        return [spectrum(K, Q) for K, Q in zip(self.K, self.Q, strict=True)]

    def score_changes(self, K: Array, Q: Array) -> Array:
        """First-order changes of [W w0], (H, d, d+1), when the factors change by K and Q."""
        return np.asarray(np.einsum("hrd,hre->hde", K, self.Q) + np.einsum("hrd,hre->hde", self.K, Q))


@dataclass(frozen=True)
class HeadFactors(ScoreFactors):
    """Scores, readouts v (H, d), and the constant c."""

    v: Array
    c: float

    @classmethod
    def of(cls, matrices: Sequence[Array], v: Array, c: float, ranks: Sequence[int]) -> Self:
        """From matrices [W w0] (d, d+1), cut to these ranks.

        >>> heads = HeadFactors.of([np.ones((2, 3)), np.eye(2, 3)], np.ones((2, 2)), 0.5, [1, 2])
        >>> heads.unknowns, heads.parameters, heads.gauge
        (25, 15, 10)
        """
        return cls(*stacked(matrices, ranks), tuple(ranks), np.array(v, dtype=np.float64), float(c))

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
        return self.score_parameters + self.v.size + 1

    @property
    def gauge(self) -> int:
        """Directions of the unknowns that change no answer."""
        return self.unknowns - self.parameters

    def balanced(self) -> Self:
        """The same scores from factors of equal size, which keeps the fit well scaled."""
        pairs = [balanced_factors(*pair) for pair in zip(self.K, self.Q, self.ranks, strict=True)]
        return replace(self, K=np.array([K for K, _ in pairs]), Q=np.array([Q for _, Q in pairs]))

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

    def cast(self, dtype: DTypeLike) -> Self:
        """The same numbers in another format."""
        K, Q, v = (part.astype(dtype, copy=False) for part in (self.K, self.Q, self.v))
        return replace(self, K=K, Q=Q, v=v)

    def matrix_changes(self, step: Array) -> Array:
        """First-order changes of [W w0], (H, d, d+1): a step along the gauge changes nothing."""
        K, Q, _, _ = self.split(step)
        return self.score_changes(K, Q)

    def scores(self, head: int, A: Array, B: Array) -> Array:
        """aᵀ(W b + w0) for every row of A and of B, (len(A), len(B))."""
        return np.asarray((A @ self.K[head].T) @ (self.Q[head] @ with_one(B).T))


def with_one(B: Array) -> Array:
    """Rows with a one at the end, on which the query bias acts."""
    return np.column_stack([B, np.ones(len(B), dtype=B.dtype)])


def stacked(matrices: Sequence[Array], ranks: Sequence[int]) -> tuple[Array, Array]:
    """Factors (H, r, d) and (H, r, e) of matrices (d, e), each cut to its rank."""
    rows, columns = matrices[0].shape
    left, right = np.zeros((len(ranks), max(ranks), rows)), np.zeros((len(ranks), max(ranks), columns))
    for h, (matrix, rank) in enumerate(zip(matrices, ranks, strict=True)):
        left[h, :rank], right[h, :rank] = _truncated(matrix, rank)
    return left, right


def _truncated(matrix: Array, rank: int) -> tuple[Array, Array]:
    """Factors (r, d) and (r, e) of equal size whose product KᵀQ is the nearest matrix of this rank."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    root = np.sqrt(values[:rank])
    return np.asarray((left[:, :rank] * root).T), np.asarray(root[:, None] * right[:rank])


def spectrum(K: Array, Q: Array) -> Array:
    """Singular values of KᵀQ, which is not formed."""
    left, right = np.linalg.qr(K.T)[1], np.linalg.qr(Q.T)[1]
    return np.asarray(np.linalg.svd(left @ right.T, compute_uv=False))


def balanced_factors(K: Array, Q: Array, rank: int) -> tuple[Array, Array]:
    """The same of the product KᵀQ, which is not formed: (r, d) and (r, e), rows beyond the rank zero.

    >>> K, Q = balanced_factors(np.array([[9.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), 1)
    >>> np.abs(K), np.abs(Q)
    (array([[3., 0.],
           [0., 0.]]), array([[3., 0.],
           [0., 0.]]))
    """
    left, upper = np.linalg.qr(K.T)
    right, lower = np.linalg.qr(Q.T)
    inner, outer = _truncated(upper @ lower.T, rank)
    found = np.zeros_like(K), np.zeros_like(Q)
    found[0][:rank], found[1][:rank] = inner @ left.T, outer @ right.T
    return found
