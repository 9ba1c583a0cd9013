"""Several heads fitted to vector answers of any sequences: y = c + Σ_h V_hᵀ z_h, z_h = Σ_i α_i^h x_i.

A change of the scores by t_i moves z_h by Σ_i α_i t_i (x_i − z_h), so every product with the Jacobian is a
few products with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.base import softmax
from unsoftmax.solvers.head_factors import with_one
from unsoftmax.solvers.joint_refinement import Inverse
from unsoftmax.solvers.vector_heads import VectorHeads

__all__ = ["SequenceBlock", "SequenceFit", "predict_sequences"]

_RIDGE = 1e-6  # relative, in both factors of a Kronecker preconditioner


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


@dataclass(frozen=True)
class _At:
    """A block at one state: queries Q [x_N; 1] (B, H, r), weights α (B, H, N), mixed rows z (B, H, d)."""

    queries: Array
    alpha: Array
    mixed: Array


def _at(heads: VectorHeads, block: SequenceBlock) -> _At:
    queries = np.einsum("be,hre->bhr", block.asking, heads.Q, optimize=True)
    pulls = np.einsum("bhr,hrd->bhd", queries, heads.K, optimize=True)
    alpha = softmax(pulls @ block.rows.transpose(0, 2, 1))
    return _At(queries, alpha, alpha @ block.rows)


def _values(heads: VectorHeads, mixed: Array) -> Array:
    return np.asarray(np.einsum("bhd,hsd->bhs", mixed, heads.U, optimize=True))


def predict_sequences(heads: VectorHeads, block: SequenceBlock) -> Array:
    """What the heads answer, (B, m)."""
    shown = _values(heads, _at(heads, block).mixed)
    return np.asarray(np.einsum("bhs,hsm->bm", shown, heads.T, optimize=True) + heads.c)


@dataclass(frozen=True)
class SequenceFit:
    """The least-squares problem of `VectorHeads` on blocks of sequences."""

    blocks: tuple[SequenceBlock, ...]

    @classmethod
    def of(cls, blocks: Sequence[SequenceBlock]) -> Self:
        return cls(tuple(blocks))

    @property
    def answers(self) -> int:
        return sum(block.answers.size for block in self.blocks)

    def residual(self, heads: VectorHeads) -> Array:
        parts = [
            (predict_sequences(heads, block) - block.answers) * block.weights[:, None]
            for block in self.blocks
        ]
        return np.concatenate([part.ravel() for part in parts])

    def linearise(self, heads: VectorHeads) -> SequenceLinearisation:
        return SequenceLinearisation(self.blocks, heads, tuple(_at(heads, block) for block in self.blocks))

    def moved(self, heads: VectorHeads, step: Array) -> VectorHeads:
        return heads.moved(step).balanced()


@dataclass(frozen=True)
class SequenceLinearisation:
    """Products with the Jacobian at one state."""

    blocks: tuple[SequenceBlock, ...]
    heads: VectorHeads
    at: tuple[_At, ...]

    @property
    def unknowns(self) -> int:
        return self.heads.unknowns

    def forward(self, step: Array) -> Array:
        K, Q, U, T, c = self.heads.split(step)
        heads, parts = self.heads, []
        for block, at in zip(self.blocks, self.at, strict=True):
            moved = np.einsum("be,hre->bhr", block.asking, Q, optimize=True)
            pulls = np.einsum("bhr,hrd->bhd", moved, heads.K, optimize=True)
            pulls += np.einsum("bhr,hrd->bhd", at.queries, K, optimize=True)
            mixed = _covariance_product(block, at, pulls)
            shown = _values(heads, mixed) + np.einsum("bhd,hsd->bhs", at.mixed, U, optimize=True)
            total = np.einsum("bhs,hsm->bm", shown, heads.T, optimize=True) + c
            total += np.einsum("bhs,hsm->bm", _values(heads, at.mixed), T, optimize=True)
            parts.append((total * block.weights[:, None]).ravel())
        return np.concatenate(parts)

    def backward(self, residual: Array) -> Array:
        heads, m = self.heads, self.heads.outputs
        total, start = np.zeros(self.unknowns), 0
        for block, at in zip(self.blocks, self.at, strict=True):
            part = residual[start : start + len(block.rows) * m].reshape(-1, m) * block.weights[:, None]
            start += part.size
            through = np.einsum("bm,hsm->bhs", part, heads.T, optimize=True)
            T = np.einsum("bhs,bm->hsm", _values(heads, at.mixed), part, optimize=True)
            U = np.einsum("bhs,bhd->hsd", through, at.mixed, optimize=True)
            pulls = _covariance_product(block, at, np.einsum("bhs,hsd->bhd", through, heads.U, optimize=True))
            K = np.einsum("bhr,bhd->hrd", at.queries, pulls, optimize=True)
            keys = np.einsum("bhd,hrd->bhr", pulls, heads.K, optimize=True)
            Q = np.einsum("bhr,be->hre", keys, block.asking, optimize=True)
            total += heads.joined(K, Q, U, T, part.sum(axis=0))
        return total

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
        for h in range(heads.heads):
            values = heads.U[h].T @ heads.T[h]  # (d, m)
            centred = block.rows - at.mixed[:, h][:, None]
            shown = np.einsum("bnd,dm->bnm", centred * at.alpha[:, h][:, :, None], values, optimize=True)
            by_pull = np.einsum("bnm,bnd->bmd", shown, block.rows, optimize=True)
            K = np.einsum("br,bmd->bmrd", at.queries[:, h], by_pull)
            Q = np.einsum("bmr,be->bmre", by_pull @ heads.K[h].T, block.asking)
            U = np.einsum("sm,bd->bmsd", heads.T[h], at.mixed[:, h])
            T = np.einsum("bs,mk->bmsk", at.mixed[:, h] @ heads.U[h].T, np.eye(m))
            columns += [part.reshape(B, m, -1) for part in (K, Q, U, T)]
        columns.append(np.broadcast_to(np.eye(m), (B, m, m)))
        joined = np.concatenate(columns, axis=2) * block.weights[:, None, None]
        return np.asarray(joined.reshape(B * m, -1))

    def diagonal(self) -> Array:
        return np.concatenate(
            [*(_outer_diagonals(parts) for parts in self._factors), np.full(self.heads.outputs, self._mass)]
        )

    @cached_property
    def _mass(self) -> float:
        return sum(float((block.weights**2).sum()) for block in self.blocks)

    @cached_property
    def _factors(self) -> list[list[tuple[Array, Array]]]:
        """For every head, JᵀJ of each of its factors as a Kronecker product left ⊗ right."""
        return [self._factors_of(h) for h in range(self.heads.heads)]

    def _factors_of(self, h: int) -> list[tuple[Array, Array]]:
        heads, d = self.heads, self.heads.width
        r = heads.K.shape[1]
        queries, asking = np.zeros((r, r)), np.zeros((d + 1, d + 1))
        pulls, mixed = np.zeros((d, d)), np.zeros((d, d))
        values = heads.U[h].T @ heads.T[h]
        for block, at in zip(self.blocks, self.at, strict=True):
            w = block.weights**2
            queries += (at.queries[:, h].T * w) @ at.queries[:, h]
            asking += (block.asking.T * w) @ block.asking
            mixed += (at.mixed[:, h].T * w) @ at.mixed[:, h]
            centred = (block.rows - at.mixed[:, h][:, None]) * at.alpha[:, h][:, :, None]
            shown = np.einsum("bnd,dm->bnm", centred, values, optimize=True)
            inner = np.einsum("bnm,bkm->bnk", shown, shown, optimize=True) * w[:, None, None]
            pulls += np.einsum("bnk,bnd,bke->de", inner, block.rows, block.rows, optimize=True)
        keys = heads.K[h] @ pulls @ heads.K[h].T
        return [
            (queries / self._mass, pulls),
            (keys, asking / self._mass),
            (heads.T[h] @ heads.T[h].T, mixed),
            (heads.U[h] @ mixed @ heads.U[h].T, np.eye(heads.outputs)),
        ]

    def preconditioner(self, damping: Array) -> Inverse | None:
        """Each factor of a head by its Kronecker product, in the basis that makes both sides diagonal."""
        heads = self.heads
        turned = [
            [(np.linalg.eigh(left), np.linalg.eigh(right)) for left, right in parts]
            for parts in self._factors
        ]
        relative = float(np.median(damping / np.maximum(self.diagonal(), 1e-300)))

        def inverse(vector: Array) -> Array:
            *tensors, c = heads.split(vector)
            found = [np.empty_like(tensor) for tensor in tensors]
            for h, parts in enumerate(turned):
                for k, ((lv, lq), (rv, rq)) in enumerate(parts):
                    ridge = _RIDGE + relative
                    weights = np.outer(lv + ridge * lv[-1] + 1e-300, rv + ridge * rv[-1] + 1e-300)
                    found[k][h] = lq @ ((lq.T @ tensors[k][h] @ rq) / weights) @ rq.T
            return heads.joined(found[0], found[1], found[2], found[3], c / (self._mass * (1.0 + relative)))

        return inverse


def _outer_diagonals(parts: list[tuple[Array, Array]]) -> Array:
    return np.concatenate([np.outer(np.diag(left), np.diag(right)).ravel() for left, right in parts])


def _covariance_product(block: SequenceBlock, at: _At, vectors: Array) -> Array:
    """Σ_i α_i (x_i·p)(x_i − z) for every sequence and head."""
    along = vectors @ block.rows.transpose(0, 2, 1)  # (B, H, N)
    weighted = at.alpha * along
    return np.asarray(weighted @ block.rows - weighted.sum(axis=2, keepdims=True) * at.mixed)
