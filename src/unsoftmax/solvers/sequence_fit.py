"""Several heads fitted to vector answers of any sequences: y = c + Σ_h V_hᵀ z_h, z_h = Σ_i α_i^h x_i.

A change of the scores by t_i moves z_h by Σ_i α_i t_i (x_i − z_h), so every product with the Jacobian is a
few products with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from unsoftmax.arrays import Array
from unsoftmax.models.base import softmax
from unsoftmax.solvers.head_factors import with_one
from unsoftmax.solvers.joint_refinement import Inverse
from unsoftmax.solvers.sequence_preconditioner import HeadsPreconditioner, Probed
from unsoftmax.solvers.vector_heads import VectorHeads

__all__ = ["SequenceBlock", "SequenceFit", "predict_sequences"]

_CHUNK = 1024  # sequences at a time: what passes through the heads stays within some tens of megabytes
# unknowns from which products with J are computed in float32: steps need three digits, and take half the time
_SHORT_PRODUCTS = 20_000
_SAMPLED = 6000  # rows of sequences that a preconditioner is built from: fifteen times the widest layer tried


@dataclass(frozen=True)
class SequenceBlock:
    """Rows (B, N, d), answers (B, m), a weight a sequence (B,). group: sequences that are reweighted
    together.
    """

    rows: Array
    answers: Array
    weights: Array
    group: str

    @classmethod
    def of(cls, rows: Array, answers: Array, group: str) -> Self:
        """Weights fall with the longest row, as the rounding of an answer grows with it."""
        sizes = (rows**2).sum(axis=2).max(axis=1)
        return cls(rows, answers, 1.0 / np.sqrt(sizes + 1.0), group)

    @cached_property
    def asking(self) -> Array:
        """[x_N; 1]."""
        return with_one(self.rows[:, -1])

    def chunks(self) -> Iterator[Self]:
        """The same sequences, not too many at a time."""
        for i in range(0, len(self.rows), _CHUNK):
            part = slice(i, i + _CHUNK)
            yield replace(self, rows=self.rows[part], answers=self.answers[part], weights=self.weights[part])

    def sampled(self, step: int) -> Self:
        """Every step-th sequence, weighted so that sums keep their size."""
        count = len(self.rows[::step])
        weights = self.weights[::step] * np.sqrt(len(self.rows) / max(count, 1))
        return replace(self, rows=self.rows[::step], answers=self.answers[::step], weights=weights)

    def cast(self, dtype: DTypeLike) -> Self:
        return replace(
            self, rows=self.rows.astype(dtype, copy=False), weights=self.weights.astype(dtype, copy=False)
        )


@dataclass(frozen=True)
class _At:
    """A block at one state: queries Q [x_N; 1] (B, H, r) and weights α (B, H, N)."""

    queries: Array
    alpha: Array


def _head_by_head(left: Array, right: Array) -> Array:
    """(B, H, r) and (H, r, d) to (B, H, d)."""
    return np.asarray(np.matmul(left.swapaxes(0, 1), right).swapaxes(0, 1))


def _through(asking: Array, Q: Array) -> Array:
    """Q_h [x_N; 1] of all heads, (B, H, r)."""
    return np.asarray(asking @ Q.reshape(-1, Q.shape[2]).T).reshape(len(asking), *Q.shape[:2])


def _at(heads: VectorHeads, block: SequenceBlock) -> _At:
    queries = _through(block.asking, heads.Q)
    alpha = softmax(_head_by_head(queries, heads.K) @ block.rows.transpose(0, 2, 1))
    return _At(queries, alpha)


def _values(heads: VectorHeads, mixed: Array) -> Array:
    """U_h z_h of all heads, (B, H, s)."""
    return _head_by_head(mixed, heads.U.transpose(0, 2, 1))


def _outputs(shown: Array, T: Array) -> Array:
    """Σ_h T_hᵀ of what heads show, (B, m)."""
    return np.asarray(shown.reshape(len(shown), -1) @ T.reshape(-1, T.shape[2]))


def predict_sequences(heads: VectorHeads, block: SequenceBlock) -> Array:
    """What the heads answer, (B, m)."""
    parts = [_outputs(_values(heads, _at(heads, part).alpha @ part.rows), heads.T) for part in block.chunks()]
    return np.asarray(np.concatenate(parts) + heads.c)


@dataclass(frozen=True)
class SequenceFit:
    """The least-squares problem of `VectorHeads` on blocks of sequences."""

    blocks: tuple[SequenceBlock, ...]

    @classmethod
    def of(cls, blocks: Sequence[SequenceBlock]) -> Self:
        return cls(tuple(block for block in blocks if len(block.rows)))

    @property
    def answers(self) -> int:
        return sum(block.answers.size for block in self.blocks)

    def sampled(self, step: int) -> Self:
        """Every step-th sequence."""
        return type(self)(tuple(block.sampled(step) for block in self.blocks))

    def residual(self, heads: VectorHeads) -> Array:
        parts = [
            (predict_sequences(heads, block) - block.answers) * block.weights[:, None]
            for block in self.blocks
        ]
        return np.concatenate([part.ravel() for part in parts])

    def linearise(self, heads: VectorHeads) -> _SequenceLinearisation:
        dtype = np.float32 if heads.unknowns > _SHORT_PRODUCTS else np.float64
        blocks = tuple(part.cast(dtype) for block in self.blocks for part in block.chunks())
        cast = heads.cast(dtype)
        return _SequenceLinearisation(blocks, cast, tuple(_at(cast, block) for block in blocks))

    def moved(self, heads: VectorHeads, step: Array) -> VectorHeads:
        return heads.moved(step).balanced()


@dataclass(frozen=True)
class _SequenceLinearisation:
    """Products with the Jacobian at one state, chunk by chunk, in the format of `heads`."""

    blocks: tuple[SequenceBlock, ...]
    heads: VectorHeads
    at: tuple[_At, ...]

    @property
    def unknowns(self) -> int:
        return self.heads.unknowns

    def forward(self, step: Array) -> Array:
        heads = self.heads
        K, Q, U, T, c = heads.split(step.astype(heads.K.dtype, copy=False))
        parts = []
        for block, at in zip(self.blocks, self.at, strict=True):
            mixed = at.alpha @ block.rows
            pulls = _head_by_head(_through(block.asking, Q), heads.K) + _head_by_head(at.queries, K)
            moved = _covariance_product(block, at, mixed, pulls)
            shown = _values(heads, moved) + _head_by_head(mixed, U.transpose(0, 2, 1))
            total = _outputs(shown, heads.T) + _outputs(_values(heads, mixed), T) + c
            parts.append((total * block.weights[:, None]).ravel())
        return np.concatenate(parts).astype(np.float64, copy=False)

    def backward(self, residual: Array) -> Array:
        heads, m = self.heads, self.heads.outputs
        residual = residual.astype(heads.K.dtype, copy=False)
        total, start = np.zeros(self.unknowns), 0
        for block, at in zip(self.blocks, self.at, strict=True):
            part = residual[start : start + len(block.rows) * m].reshape(-1, m) * block.weights[:, None]
            start += part.size
            mixed = at.alpha @ block.rows
            through, pulls = self._pulled(block, at, mixed, part)
            T = _values(heads, mixed).reshape(len(part), -1).T @ part
            U = np.matmul(through.transpose(1, 2, 0), mixed.swapaxes(0, 1))
            K = np.matmul(at.queries.transpose(1, 2, 0), pulls.swapaxes(0, 1))
            keys = _head_by_head(pulls, heads.K.transpose(0, 2, 1))
            Q = keys.reshape(len(part), -1).T @ block.asking
            total += heads.joined(K, Q, U, T, part.sum(axis=0))
        return total

    def _pulled(self, block: SequenceBlock, at: _At, mixed: Array, part: Array) -> tuple[Array, Array]:
        """Gradients of part·y in U_h z_h (B, H, s), and in K_hᵀ Q_h [x_N; 1] (B, H, d)."""
        heads = self.heads
        through = (part @ heads.T.reshape(-1, heads.outputs).T).reshape(len(part), *heads.T.shape[:2])
        return through, _covariance_product(block, at, mixed, _head_by_head(through, heads.U))

    def normal(self) -> Array:
        """JᵀJ from J itself, block by block."""
        total = np.zeros((self.unknowns, self.unknowns))
        for block, at in zip(self.blocks, self.at, strict=True):
            jacobian = self._jacobian(block, at)
            total += jacobian.T @ jacobian
        return total

    def _jacobian(self, block: SequenceBlock, at: _At) -> Array:
        heads, B, m = self.heads, len(block.rows), self.heads.outputs
        columns = []
        everything = at.alpha @ block.rows
        for h in range(heads.heads):
            mixed = everything[:, h]
            values = heads.U[h].T @ heads.T[h]  # (d, m)
            centred = block.rows - mixed[:, None]
            shown = (centred * at.alpha[:, h][:, :, None]) @ values
            by_pull = shown.transpose(0, 2, 1) @ block.rows
            K = np.einsum("br,bmd->bmrd", at.queries[:, h], by_pull)
            Q = np.einsum("bmr,be->bmre", by_pull @ heads.K[h].T, block.asking)
            U = np.einsum("sm,bd->bmsd", heads.T[h], mixed)
            T = np.einsum("bs,mk->bmsk", mixed @ heads.U[h].T, np.eye(m))
            columns += [part.reshape(B, m, -1) for part in (K, Q, U, T)]
        columns.append(np.broadcast_to(np.eye(m), (B, m, m)))
        joined = np.concatenate(columns, axis=2) * block.weights[:, None, None]
        return np.asarray(joined.reshape(B * m, -1))

    def diagonal(self) -> Array:
        return self._sides.diagonal()

    def preconditioner(self, damping: Array) -> Inverse | None:
        relative = float(np.median(damping / np.maximum(self.diagonal(), 1e-300)))
        return self._sides.inverse(relative)

    @cached_property
    def _sides(self) -> HeadsPreconditioner:
        """From random gradients of a sample of the sequences."""
        found, rng = HeadsPreconditioner.empty(self.heads), np.random.default_rng(0)
        step = max(1, sum(block.rows.shape[0] * block.rows.shape[1] for block in self.blocks) // _SAMPLED)
        for block in (block.sampled(step) for block in self.blocks):
            at = _at(self.heads, block)
            mixed = at.alpha @ block.rows
            shown = _values(self.heads, mixed)
            noise = rng.standard_normal((len(block.rows), self.heads.outputs)) * block.weights[:, None]
            pulls = self._pulled(block, at, mixed, noise.astype(mixed.dtype))[1]
            found = found.with_more(Probed(block.asking, at.queries, mixed, shown, pulls, block.weights))
        return found


def _covariance_product(block: SequenceBlock, at: _At, mixed: Array, vectors: Array) -> Array:
    """Σ_i α_i (x_i·p)(x_i − z) for every sequence and head."""
    along = vectors @ block.rows.transpose(0, 2, 1)  # (B, H, N)
    weighted = at.alpha * along
    return np.asarray(weighted @ block.rows - weighted.sum(axis=2, keepdims=True) * mixed)
