"""Several heads fitted to answers of two rows: y = c + b·Σv_h + Σ_h σ((K_h a)·(Q_h [b; 1]))·(a·v_h) for the
rows [a + b; b].

Answers come in blocks. A grid asks every a with every b, and then all products with the Jacobian are small
matrix products; a list asks a_i with b_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from unsoftmax.arrays import Array, expit
from unsoftmax.solvers.head_fits.head_factors import HeadFactors, with_one
from unsoftmax.solvers.head_fits.two_row_normal import HeadAt, head_products
from unsoftmax.solvers.head_fits.two_row_preconditioner import HeadSides, SharedReadouts, inverse_of_heads
from unsoftmax.solvers.least_squares.joint_refinement import Inverse

__all__ = ["AnswerBlock", "TwoRowFit", "TwoRowLinearisation", "predict_block"]

# unknowns from which products with J are computed in float32: steps need three digits, and take half the time
_SHORT_PRODUCTS = 20_000
# cosine of a readout and a row, in such products: usual ones are 1/√d, and a start of a readout that is off
# by a hundredth leaves a hundredth of that
_STILL = 1e-3


@dataclass(frozen=True)
class AnswerBlock:
    """answers (n_a, n_b) of a grid; (n, 1) of a list. weights: of every answer. group: answers that are
    reweighted together.
    """

    A: Array
    B: Array
    answers: Array
    weights: Array
    group: str
    grid: bool = True

    @classmethod
    def of(cls, A: Array, B: Array, answers: Array, group: str, grid: bool = True) -> Self:
        """Weights fall with the size of the rows, as the rounding of an answer grows with it."""
        sizes = (A**2).sum(axis=1)[:, None] + (
            (B**2).sum(axis=1)[None] if grid else (B**2).sum(axis=1)[:, None]
        )
        shaped = answers.reshape(sizes.shape)
        return cls(A, B, shaped, 1.0 / np.sqrt(sizes + 1.0), group, grid)

    @cached_property
    def asking(self) -> Array:
        """[b; 1]."""
        return with_one(self.B)

    def crossed(self, left: Array, right: Array) -> Array:
        """left_i·right_j on a grid, left_i·right_i on a list."""
        return left @ right.T if self.grid else np.asarray((left * right).sum(axis=1, keepdims=True))

    def on_b(self, values: Array) -> Array:
        """One number for every b, as an array of the shape of the answers."""
        return np.broadcast_to(values[None], self.answers.shape) if self.grid else values[:, None]

    def summed_over_a(self, values: Array) -> Array:
        return np.asarray(values.sum(axis=0 if self.grid else 1))

    def cast(self, dtype: DTypeLike) -> Self:
        """The same rows and weights in another format."""
        A, B, weights = (part.astype(dtype, copy=False) for part in (self.A, self.B, self.weights))
        return replace(self, A=A, B=B, weights=weights)


def predict_block(heads: HeadFactors, block: AnswerBlock) -> Array:
    """What the heads answer, in the shape of block.answers."""
    total = block.on_b(block.B @ heads.v.sum(axis=0) + heads.c).copy()
    for K, Q, v in zip(heads.K, heads.Q, heads.v, strict=True):
        total += expit(block.crossed(block.A @ K.T, block.asking @ Q.T)) * (block.A @ v)[:, None]
    return total


@dataclass(frozen=True)
class _BlockAt:
    """All heads on a block. shares (n_a, H, n_b), or (n, H, 1) of a list. moving: heads whose scores move
    answers. The others' readouts are orthogonal to the first rows, as those of all but one head are where one
    is isolated.
    """

    heads: tuple[HeadAt, ...]
    shares: Array
    moving: tuple[int, ...]

    @classmethod
    def of(cls, heads: HeadFactors, block: AnswerBlock, still: float) -> Self:
        """still: cosine of readouts and first rows up to which they count as orthogonal."""
        along = block.A @ heads.v.T
        sizes = np.outer(np.linalg.norm(block.A, axis=1), np.linalg.norm(heads.v, axis=1))
        moving = tuple(np.flatnonzero((np.abs(along) > still * sizes).any(axis=0)).tolist())
        shares = np.empty((len(block.A), heads.heads, block.answers.shape[1]), dtype=block.A.dtype)
        states = []
        for h in range(heads.heads):
            keys, queries = block.A @ heads.K[h].T, block.asking @ heads.Q[h].T
            share = expit(block.crossed(keys, queries))
            shares[:, h] = share
            states.append(HeadAt(keys, queries, share, share * (1.0 - share) * along[:, h : h + 1]))
        return cls(tuple(states), shares, moving)


def _through(rows: Array, factors: Array, chosen: Sequence[int]) -> list[Array]:
    """Rows (n, e) through the factors (H, r, e) of the chosen heads, (n, r) of each."""
    some = factors[list(chosen)]
    found = rows @ some.reshape(-1, some.shape[2]).T
    return [found[:, i : i + some.shape[1]] for i in range(0, found.shape[1], some.shape[1])]


@dataclass(frozen=True)
class TwoRowFit:
    """The least-squares problem of `HeadFactors` on blocks of answers."""

    blocks: tuple[AnswerBlock, ...]

    @classmethod
    def of(cls, blocks: Sequence[AnswerBlock]) -> Self:
        return cls(tuple(blocks))

    @property
    def answers(self) -> int:
        return sum(block.answers.size for block in self.blocks)

    def residual(self, heads: HeadFactors) -> Array:
        parts = [block.weights * (predict_block(heads, block) - block.answers) for block in self.blocks]
        return np.concatenate([part.ravel() for part in parts])

    def linearise(self, heads: HeadFactors) -> TwoRowLinearisation:
        dtype = np.float32 if heads.unknowns > _SHORT_PRODUCTS else np.float64
        blocks, cast = tuple(block.cast(dtype) for block in self.blocks), heads.cast(dtype)
        still = _STILL if dtype is np.float32 else 0.0
        return TwoRowLinearisation(blocks, cast, tuple(_BlockAt.of(cast, block, still) for block in blocks))

    def moved(self, heads: HeadFactors, step: Array) -> HeadFactors:
        return heads.moved(step).balanced()


@dataclass(frozen=True)
class TwoRowLinearisation:
    """Products with the Jacobian at one state; `at` holds the heads' scores on every block."""

    blocks: tuple[AnswerBlock, ...]
    heads: HeadFactors
    at: tuple[_BlockAt, ...]

    @property
    def unknowns(self) -> int:
        return self.heads.unknowns

    def forward(self, step: Array) -> Array:
        K, Q, v, c = self.heads.split(step.astype(self.heads.K.dtype, copy=False))
        parts = []
        for block, at in zip(self.blocks, self.at, strict=True):
            total = block.on_b(block.B @ v.sum(axis=0) + c).copy()
            total += np.matmul((block.A @ v.T)[:, None], at.shares)[:, 0]
            keys, queries = _through(block.A, K, at.moving), _through(block.asking, Q, at.moving)
            for h, key, query in zip(at.moving, keys, queries, strict=True):
                state = at.heads[h]
                left, right = np.hstack([key, state.keys]), np.hstack([state.queries, query])
                total += state.slope * block.crossed(left, right)
            parts.append((block.weights * total).ravel())
        return np.concatenate(parts).astype(np.float64, copy=False)

    def backward(self, residual: Array) -> Array:
        heads = self.heads
        residual = residual.astype(heads.K.dtype, copy=False)
        K, Q, v, c = (*(np.zeros(part.shape) for part in (heads.K, heads.Q, heads.v)), 0.0)
        start = 0
        for block, at in zip(self.blocks, self.at, strict=True):
            size = block.answers.size
            part = residual[start : start + size].reshape(block.answers.shape) * block.weights
            start += size
            c += float(part.sum())
            v += np.matmul(at.shares, part[:, :, None])[:, :, 0].T @ block.A
            v += block.B.T @ block.summed_over_a(part)
            keys, queries = [], []
            for h in at.moving:
                sloped, state = part * at.heads[h].slope, at.heads[h]
                keys.append(sloped @ state.queries if block.grid else sloped * state.queries)
                queries.append(sloped.T @ state.keys if block.grid else sloped * state.keys)
            if at.moving:
                moving = list(at.moving)
                K[moving] += (np.hstack(keys).T @ block.A).reshape(-1, *K.shape[1:])
                Q[moving] += (np.hstack(queries).T @ block.asking).reshape(-1, *Q.shape[1:])
        return heads.joined(K, Q, v, c)

    def normal(self) -> Array:
        H, size = self.heads.heads, self.heads.per_head
        total = np.zeros((self.unknowns, self.unknowns))
        for block, at in zip(self.blocks, self.at, strict=True):
            for h in range(H):
                for k in range(h + 1):
                    pair = at.heads[h], at.heads[k]
                    part = head_products(block.A, block.B, block.weights, *pair, block.grid)
                    total[h * size : (h + 1) * size, k * size : (k + 1) * size] += part
                    if k < h:
                        total[k * size : (k + 1) * size, h * size : (h + 1) * size] += part.T
        constant = self.backward(np.concatenate([block.weights.ravel() for block in self.blocks]))
        total[-1], total[:, -1] = constant, constant
        return total

    def diagonal(self) -> Array:
        """Nearly."""
        parts = [head.diagonal() for head in self.sides]
        K, Q = (np.array([part[i] for part in parts]) for i in range(2))
        v = np.diag(self._shared_readouts.normal).reshape(self.heads.v.shape)
        return self.heads.joined(K, Q, v, self._constant)

    @cached_property
    def _constant(self) -> float:
        return sum(float((block.weights**2).sum()) for block in self.blocks)

    @cached_property
    def sides(self) -> list[HeadSides]:
        """JᵀJ of every head by itself, nearly."""
        found = [HeadSides.empty(self.heads) for _ in range(self.heads.heads)]
        for block, at in zip(self.blocks, self.at, strict=True):
            asking = block.asking.T @ block.asking / max(len(block.B), 1)
            for h in at.moving:
                found[h] = found[h].with_more(block.A, asking, block.weights, at.heads[h], block.grid)
        return found

    @cached_property
    def _shared_readouts(self) -> SharedReadouts:
        found = SharedReadouts()
        for block, at in zip(self.blocks, self.at, strict=True):
            shares = at.shares.swapaxes(0, 1)
            found.add(block.group, (block.A, block.B), block.weights, shares, block.grid)
        return found

    def preconditioner(self, damping: Array) -> Inverse | None:
        relative = float(np.median(damping / np.maximum(self.diagonal(), 1e-300)))
        return inverse_of_heads(self.heads, self.sides, self._shared_readouts, self._constant, relative)
