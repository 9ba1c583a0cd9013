"""All heads with vector answers as factors: scores (K_h x_i)·(Q_h [x_N; 1]), values V_h = U_hᵀ T_h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_fits.head_factors import ScoreFactors, balanced_factors, stacked

__all__ = ["VectorHeads"]


@dataclass(frozen=True)
class VectorHeads(ScoreFactors):
    """Scores, values U (H, s, d), T (H, s, m), and the constant c (m,).

    value_ranks: of every head. Rows of U and T beyond them are zero, and a fit leaves them there.
    """

    U: Array
    T: Array
    value_ranks: tuple[int, ...]
    c: Array

    @classmethod
    def of(
        cls,
        matrices: Sequence[Array],
        values: Sequence[Array],
        c: Array,
        ranks: Sequence[int],
        value_ranks: Sequence[int],
    ) -> Self:
        """From [W w0] (d, d+1) and V (d, m) of every head, cut to these ranks.

        >>> heads = VectorHeads.of([np.ones((2, 3))], [np.eye(2, 4)], np.zeros(4), [1], [2])
        >>> heads.unknowns, heads.parameters
        (21, 16)
        """
        scores, parts = stacked(matrices, ranks), stacked(values, value_ranks)
        return cls(*scores, tuple(ranks), *parts, tuple(value_ranks), np.array(c, dtype=np.float64))

    @property
    def outputs(self) -> int:
        return int(self.T.shape[2])

    @property
    def per_head(self) -> int:
        return int(self.K[0].size + self.Q[0].size + self.U[0].size + self.T[0].size)

    @property
    def unknowns(self) -> int:
        return self.heads * self.per_head + self.outputs

    @property
    def parameters(self) -> int:
        """Degrees of freedom: rank-r matrices (d, d+1), rank-s matrices (d, m), the constants."""
        d, m = self.width, self.outputs
        return self.score_parameters + sum(s * (d + m - s) for s in self.value_ranks) + m

    @property
    def gauge(self) -> int:
        """Directions of the unknowns that change no answer."""
        return self.unknowns - self.parameters

    @property
    def values(self) -> Array:
        """V of every head, (H, d, m)."""
        return np.asarray(np.einsum("hsd,hsm->hdm", self.U, self.T))

    def balanced(self) -> Self:
        """The same function from factors of equal size."""
        scores = [balanced_factors(*pair) for pair in zip(self.K, self.Q, self.ranks, strict=True)]
        values = [balanced_factors(*pair) for pair in zip(self.U, self.T, self.value_ranks, strict=True)]
        K, Q = (np.array([pair[i] for pair in scores]) for i in (0, 1))
        U, T = (np.array([pair[i] for pair in values]) for i in (0, 1))
        return replace(self, K=K, Q=Q, U=U, T=T)

    def cut(self, ranks: Sequence[int], value_ranks: Sequence[int]) -> Self:
        """The nearest matrices of these ranks."""
        return type(self).of(list(self.matrices), list(self.values), self.c, ranks, value_ranks)

    def split(self, step: Array) -> tuple[Array, Array, Array, Array, Array]:
        """A flat step as changes of (K, Q, U, T, c): head by head K, Q, U, T; c comes last."""
        parts = step[: -self.outputs].reshape(self.heads, self.per_head)
        found, start = [], 0
        for like in (self.K, self.Q, self.U, self.T):
            size = like[0].size
            found.append(parts[:, start : start + size].reshape(like.shape))
            start += size
        return found[0], found[1], found[2], found[3], step[-self.outputs :]

    def joined(self, K: Array, Q: Array, U: Array, T: Array, c: Array) -> Array:
        """The inverse of `split`."""
        parts = np.concatenate([part.reshape(self.heads, -1) for part in (K, Q, U, T)], axis=1)
        return np.concatenate([parts.ravel(), c])

    def moved(self, step: Array) -> Self:
        K, Q, U, T, c = self.split(step)
        return replace(self, K=self.K + K, Q=self.Q + Q, U=self.U + U, T=self.T + T, c=self.c + c)

    def cast(self, dtype: DTypeLike) -> Self:
        """The same numbers in another format."""
        K, Q, U, T, c = (part.astype(dtype, copy=False) for part in (self.K, self.Q, self.U, self.T, self.c))
        return replace(self, K=K, Q=Q, U=U, T=T, c=c)

    def changes(self, step: Array) -> tuple[Array, Array, Array]:
        """First-order changes of [W w0], V and c: a step along the gauge changes nothing."""
        K, Q, U, T, c = self.split(step)
        in_V = np.einsum("hsd,hsm->hdm", U, self.T) + np.einsum("hsd,hsm->hdm", self.U, T)
        return self.score_changes(K, Q), np.asarray(in_V), c
