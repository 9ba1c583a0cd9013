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
from unsoftmax.solvers.head_fits.head_factors import with_one
from unsoftmax.solvers.head_fits.sequence_preconditioner import HeadsPreconditioner, Probed
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads
from unsoftmax.solvers.least_squares.linearisation import Inverse

__all__ = ["SequenceBlock", "SequenceFit", "predict_sequences"]

_CHUNK = 1024  # sequences at a time: at width 384 with twelve heads and 16 rows, 100 MB pass through them
# bytes of keys and values that are kept between products; those of further sequences are computed for each,
# which takes about as long as the product itself. A step holds two states.
_KEPT = 1.5e9
# unknowns from which products with J are computed in float32: steps need three digits, and take half the time
_SHORT_PRODUCTS = 20_000
# sequences that a preconditioner is built from, over the size of its matrices: with fewer they are singular
_SAMPLED = 15
_ROUNDED = 1e-6  # relative: rows of factors beyond a rank are zero
# of the usual sequence, how much any may show of the scores in an evened fit
_EVEN = 0.03  # sixty inner steps on four heads of a trained layer: errors fall 10 times as far as with 1


@dataclass(frozen=True)
class SequenceBlock:
    """Rows (B, N, d), answers (B, m), a weight per sequence (B,). group: sequences that are reweighted
    together.
    """

    rows: Array
    answers: Array
    weights: Array
    group: str

    @classmethod
    def of(cls, rows: Array, answers: Array, group: str) -> Self:
        """Weights fall with the longest row, as the rounding of an answer grows with it. Rows that float32
        holds are held in it."""
        sizes = (rows**2).sum(axis=2).max(axis=1)
        short = bool((rows.astype(np.float32) == rows).all())
        found = cls(rows, answers, 1.0 / np.sqrt(sizes + 1.0), group)
        return found.cast(np.float32 if short else np.float64)

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

    def weighted(self, factors: Array) -> Self:
        """Weights times these factors, in the format that they have."""
        return replace(self, weights=(self.weights * factors).astype(self.weights.dtype))

    def cast(self, dtype: DTypeLike) -> Self:
        return replace(
            self, rows=self.rows.astype(dtype, copy=False), weights=self.weights.astype(dtype, copy=False)
        )


@dataclass(frozen=True)
class _At:
    """A block at one state: queries Q [x_N; 1] (B, H, r) and weights α (B, H, N)."""

    queries: Array
    alpha: Array


@dataclass(frozen=True)
class _Chunk:
    """A block at one state, with what every product with the Jacobian needs: keys K_h x_i (B, H, N, r),
    values U_h x_i (B, H, N, s), mixed z_h (B, H, d), shown U_h z_h (B, H, s)."""

    block: SequenceBlock
    at: _At
    keys: Array
    values: Array
    mixed: Array
    shown: Array

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.keys, self.values, self.mixed, self.shown))

    @classmethod
    def of(cls, heads: VectorHeads, block: SequenceBlock) -> Self:
        at = _at(heads, block)
        values = _of_rows(block.rows, heads.U)
        mixed, shown = at.alpha @ block.rows, _weighted(at.alpha, values)
        return cls(block, at, _of_rows(block.rows, heads.K), values, mixed, shown)

    def weight_changes(self, scores: Array) -> Array:
        """Changes of α (B, H, N) when the scores change."""
        mean = (self.at.alpha * scores).sum(axis=2, keepdims=True)
        return np.asarray(self.at.alpha * (scores - mean))

    def score_changes(self, K: Array, Q: Array) -> Array:
        """Changes of the scores (B, H, N) when the factors change."""
        by_keys = _head_by_head(self.at.queries, K) @ self.block.rows.transpose(0, 2, 1)
        return np.asarray(by_keys + _along(self.keys, _through(self.block.asking, Q)))

    def score_gradients(self, through: Array) -> Array:
        """Gradients in the scores (B, H, N), from those in U_h z_h."""
        return self.weight_changes(_along(self.values, through))

    def factor_gradients(self, scores: Array) -> tuple[Array, Array]:
        """Gradients in K and Q, from those in the scores."""
        pulls = scores @ self.block.rows
        K = np.matmul(self.at.queries.transpose(1, 2, 0), pulls.swapaxes(0, 1))
        Q = _weighted(scores, self.keys).reshape(len(scores), -1).T @ self.block.asking
        return np.asarray(K), np.asarray(Q).reshape(*K.shape[:2], -1)


def _head_by_head(left: Array, right: Array) -> Array:
    """(B, H, r) and (H, r, d) to (B, H, d)."""
    return np.asarray(np.matmul(left.swapaxes(0, 1), right).swapaxes(0, 1))


def _of_rows(rows: Array, factors: Array) -> Array:
    """(B, N, d) and (H, r, d) to (B, H, N, r)."""
    found = rows.reshape(-1, rows.shape[2]) @ factors.reshape(-1, factors.shape[2]).T
    return np.ascontiguousarray(found.reshape(*rows.shape[:2], *factors.shape[:2]).transpose(0, 2, 1, 3))


def _along(rows: Array, directions: Array) -> Array:
    """(B, H, N, r) and (B, H, r) to (B, H, N)."""
    return np.asarray(np.matmul(rows, directions[..., None])[..., 0])


def _weighted(weights: Array, rows: Array) -> Array:
    """(B, H, N) and (B, H, N, r) to (B, H, r)."""
    return np.asarray(np.matmul(weights[:, :, None], rows)[:, :, 0])


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
    chunks = (part.cast(heads.K.dtype) for part in block.chunks())
    parts = [_outputs(_values(heads, _at(heads, part).alpha @ part.rows), heads.T) for part in chunks]
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

    def evened(self, heads: VectorHeads) -> Self:
        """With smaller weights for sequences that show most of the scores. A few with large queries show a
        head with large values a hundred times better than the others do, and conjugate gradients would first
        fit them one by one."""
        shares = self.linearise(heads).shares()
        usual = float(np.median(shares[shares > 0])) if shares.any() else 1.0
        factors = np.minimum(1.0, np.sqrt(_EVEN * usual / np.maximum(shares, 1e-300)))
        return self._weighted(factors)

    def capped(self, heads: VectorHeads, most: float) -> Self:
        """With smaller weights for sequences that leave more than so many times what most of them leave."""
        left = np.linalg.norm(self.residual(heads).reshape(-1, heads.outputs), axis=1)
        usual = float(np.median(left))
        return self._weighted(np.minimum(1.0, most * usual / np.maximum(left, 1e-300)))

    def _weighted(self, factors: Array) -> Self:
        """One for every sequence."""
        ends = np.cumsum([len(block.rows) for block in self.blocks])[:-1]
        parts = zip(self.blocks, np.split(factors, ends), strict=True)
        return type(self)(tuple(block.weighted(part) for block, part in parts))

    def residual(self, heads: VectorHeads) -> Array:
        parts = [
            (predict_sequences(heads, block) - block.answers) * block.weights[:, None]
            for block in self.blocks
        ]
        return np.concatenate([part.ravel() for part in parts])

    def linearise(self, heads: VectorHeads) -> _SequenceLinearisation:
        dtype = np.float32 if heads.unknowns > _SHORT_PRODUCTS else np.float64
        cast = heads.cast(dtype)
        parts = tuple(part.cast(dtype) for block in self.blocks for part in block.chunks())
        return _SequenceLinearisation(parts, cast)

    def moved(self, heads: VectorHeads, step: Array) -> VectorHeads:
        return heads.moved(step).balanced()


@dataclass(frozen=True)
class _SequenceLinearisation:
    """Products with the Jacobian at one state, chunk by chunk, in the format of `heads`."""

    blocks: tuple[SequenceBlock, ...]
    heads: VectorHeads

    @cached_property
    def kept(self) -> tuple[_Chunk, ...]:
        """The first blocks, as many as memory may hold, with what every product needs."""
        found, held = [], 0
        for block in self.blocks:
            found.append(_Chunk.of(self.heads, block))
            held += found[-1].nbytes
            if held > _KEPT:
                break
        return tuple(found)

    @property
    def chunks(self) -> Iterator[_Chunk]:
        """All blocks, in their order."""
        yield from self.kept
        for block in self.blocks[len(self.kept) :]:
            yield _Chunk.of(self.heads, block)

    @property
    def unknowns(self) -> int:
        return self.heads.unknowns

    def forward(self, step: Array) -> Array:
        heads = self.heads
        K, Q, U, T, c = heads.split(step.astype(heads.K.dtype, copy=False))
        parts = []
        for chunk in self.chunks:
            moved = _weighted(chunk.weight_changes(chunk.score_changes(K, Q)), chunk.values)
            shown = moved + _head_by_head(chunk.mixed, U.transpose(0, 2, 1))
            total = _outputs(shown, heads.T) + _outputs(chunk.shown, T) + c
            parts.append((total * chunk.block.weights[:, None]).ravel())
        return np.concatenate(parts).astype(np.float64, copy=False)

    def backward(self, residual: Array) -> Array:
        total = np.zeros(self.unknowns)
        for chunk, part in self._parts(residual):
            through = self._through(part)
            K, Q = chunk.factor_gradients(chunk.score_gradients(through))
            U = np.matmul(through.transpose(1, 2, 0), chunk.mixed.swapaxes(0, 1))
            T = chunk.shown.reshape(len(part), -1).T @ part
            total += self.heads.joined(K, Q, U, T, part.sum(axis=0))
        return total

    def _parts(self, residual: Array) -> Iterator[tuple[_Chunk, Array]]:
        """Every chunk with its weighted part (B, m) of the residual."""
        start, m, residual = 0, self.heads.outputs, residual.astype(self.heads.K.dtype, copy=False)
        for chunk in self.chunks:
            size = len(chunk.block.rows) * m
            yield chunk, residual[start : start + size].reshape(-1, m) * chunk.block.weights[:, None]
            start += size

    def _through(self, part: Array) -> Array:
        """Gradients of part·y in U_h z_h (B, H, s)."""
        T = self.heads.T
        return np.asarray(part @ T.reshape(-1, self.heads.outputs).T).reshape(len(part), *T.shape[:2])

    def normal(self) -> Array:
        """JᵀJ from J itself, block by block."""
        total = np.zeros((self.unknowns, self.unknowns))
        for chunk in self.chunks:
            jacobian = self._jacobian(chunk.block, chunk.at)
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
        return self.sides.diagonal()

    def preconditioner(self, damping: Array) -> Inverse | None:
        relative = float(np.median(damping / np.maximum(self.diagonal(), 1e-300)))
        return self.sides.inverse(relative)

    @cached_property
    def sides(self) -> HeadsPreconditioner:
        """From random gradients of a sample of the sequences."""
        found = HeadsPreconditioner.empty(self.heads)
        wanted = _SAMPLED * max(self.heads.K[..., 0].size, self.heads.U[..., 0].size)
        for probed in self._probed(max(1, sum(len(block.rows) for block in self.blocks) // wanted)):
            found = found.with_more(probed)
        return found

    def shares(self) -> Array:
        """How much of what all of them show of the scores each sequence shows: the squares of its rows of J,
        relative to what the usual query of each head would make them."""
        parts = [(probed.queries, (probed.pulls**2).sum(axis=2)) for probed in self._probed(1)]
        queries, sizes = (np.concatenate(each).astype(np.float64) for each in zip(*parts, strict=True))
        total = np.zeros(len(sizes))
        for h in range(self.heads.heads):
            usual = (queries[:, h] * sizes[:, h, None]).T @ queries[:, h]
            inverse = np.linalg.pinv(usual, rcond=_ROUNDED, hermitian=True)
            total += sizes[:, h] * ((queries[:, h] @ inverse) * queries[:, h]).sum(axis=1)
        return total

    def _probed(self, step: int) -> Iterator[Probed]:
        """Random gradients of every step-th sequence."""
        rng = np.random.default_rng(0)
        for chunk in self.chunks:
            block = chunk.block.sampled(step)
            part = _Chunk.of(self.heads, block) if step > 1 else chunk
            noise = rng.standard_normal((len(block.rows), self.heads.outputs)) * block.weights[:, None]
            pulls = part.score_gradients(self._through(noise.astype(part.mixed.dtype))) @ block.rows
            yield Probed(block.asking, part.at.queries, part.mixed, pulls, block.weights)
