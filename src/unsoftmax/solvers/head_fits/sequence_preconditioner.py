"""An approximate inverse of JᵀJ for heads with vector answers: coupled over all heads, even over the rows.

JᵀJ of the factors of scores is nearly a Kronecker product. Its side of heads and ranks is kept in full (heads
share outputs, so they are not independent), its side of rows as a diagonal, because the rows asked are
isotropic. That of the values is a `ValueModel`.
Sums run over products of both sides: where a query is large a head has saturated, and its pull is small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_fits.value_model import ValueModel, damped_inverse
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads
from unsoftmax.solvers.least_squares.joint_refinement import Inverse

__all__ = ["HeadsPreconditioner", "Probed"]

_RIDGE = 1e-5  # relative: what the Kronecker form leaves out makes smaller eigenvalues meaningless


@dataclass(frozen=True)
class Probed:
    """Sequences at one state. pulls: gradients of random combinations of the weighted answers in K_hᵀ Q_h
    [x_N; 1].
    """

    asking: Array
    queries: Array
    mixed: Array
    pulls: Array
    weights: Array

    def queries_by_pulls(self) -> Array:
        """Σ q_h q_kᵀ (p_h · p_k) over the sequences, (Hr, Hr)."""
        together = (self.pulls @ self.pulls.transpose(0, 2, 1)).astype(np.float64)
        queries = self.queries.astype(np.float64)
        return np.concatenate(
            [
                queries[:, h].T @ (together[:, h, :, None] * queries).reshape(len(queries), -1)
                for h in range(queries.shape[1])
            ]
        )


@dataclass(frozen=True)
class HeadsPreconditioner:
    """Sums over sequences. keys, queries: (Hr, Hr) of K_h p times the size of [x_N; 1], and of the queries
    Q_h [x_N; 1] times the products of p. mixed: (H, H) of z, a coordinate. asking: squares of the coordinates
    of [x_N; 1].
    """

    heads: VectorHeads
    keys: Array
    queries: Array
    mixed: Array
    asking: Array
    mass: float

    @classmethod
    def empty(cls, heads: VectorHeads) -> Self:
        H, n = heads.heads, heads.K.shape[0] * heads.K.shape[1]
        keys, queries, mixed = (np.zeros((size, size)) for size in (n, n, H))
        return cls(heads, keys, queries, mixed, asking=np.zeros(heads.width + 1), mass=0.0)

    def with_more(self, probed: Probed) -> Self:
        """With the sums over more sequences."""
        heads, count, d = self.heads, len(probed.asking), self.heads.width
        w = probed.weights[:, None]
        keys = np.matmul(probed.pulls.swapaxes(0, 1), heads.K.transpose(0, 2, 1)).swapaxes(0, 1)
        keys = keys.reshape(count, -1) * np.linalg.norm(probed.asking, axis=1, keepdims=True)
        mixed = (probed.mixed * w[:, :, None]).swapaxes(0, 1).reshape(heads.heads, -1)
        return replace(
            self,
            keys=self.keys + _squares(keys) / (d + 1),
            queries=self.queries + probed.queries_by_pulls() / d,
            mixed=self.mixed + _squares(mixed.T) / d,
            asking=self.asking + ((probed.asking * w) ** 2).sum(axis=0),
            mass=self.mass + float((w.astype(np.float64) ** 2).sum()),
        )

    def _sides(self) -> tuple[Array, Array, Array, Array]:
        """JᵀJ on the side of heads and ranks of K, Q, U, T."""
        return (self.queries, self.keys, *ValueModel.blocks(self.heads, self.mixed))

    @property
    def _asking(self) -> Array:
        """Relative to their mean."""
        return self.asking / max(float(self.asking.mean()), 1e-300)

    def diagonal(self) -> Array:
        """The diagonal of JᵀJ, nearly."""
        K, Q, U, T = (np.diag(side) for side in self._sides())
        H, d, m = self.heads.heads, self.heads.width, self.heads.outputs

        def spread(side: Array, columns: Array) -> Array:
            return np.outer(side, columns).reshape(H, -1, len(columns))

        ones = np.ones(d)
        return self.heads.joined(
            spread(K, ones),
            spread(Q, self._asking),
            spread(U, ones),
            spread(T, np.ones(m)),
            np.full(m, self.mass),
        )

    def inverse(self, damping: float) -> Inverse:
        """damping: relative, as it is added to JᵀJ."""
        heads, H = self.heads, self.heads.heads
        inverses = [damped_inverse(side, damping) for side in (self.queries, self.keys)]
        asking = self._asking + (_RIDGE + damping) * self._asking.max()
        values = ValueModel.of(heads, self.mixed, damping)

        def apply(vector: Array) -> Array:
            *scores, U, T, c = heads.split(vector)
            K, Q = (
                (inverse @ tensor.reshape(len(inverse), -1)).reshape(H, -1, tensor.shape[2])
                for inverse, tensor in zip(inverses, scores, strict=True)
            )
            U, T = values.inverse(*(part.astype(heads.U.dtype) for part in (U, T)))
            return heads.joined(K, Q / asking, U, T, c / (self.mass * (1.0 + damping)))

        return apply


def _squares(rows: Array) -> Array:
    rows = rows.astype(np.float64, copy=False)
    return np.asarray(rows.T @ rows)
