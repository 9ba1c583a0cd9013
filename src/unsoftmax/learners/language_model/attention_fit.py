"""Queries, keys, values, outputs and the rotary base together, fitted to the states of prompts of several
rows.

Everything else of the layer is known. With z normed rows, c = Σ_h O_h·Σ_i α_i V·z_i is what attention adds to
the last row, and the
state is a known function of it, linearised row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.models.base import softmax
from unsoftmax.models.language_model import Attention, Rotary
from unsoftmax.solvers.joint_refinement import DenseJacobian, Linearisation, Products

__all__ = ["AttentionFit", "AttentionState", "Prompted"]

_DENSE = 3200  # unknowns up to which the Jacobian is held as an array
_FLOOR = 1e-9  # of the mean of a block's diagonal, added to it: symmetries of a head change nothing


@dataclass(frozen=True, eq=False)
class AttentionState:
    """attention without biases, and the logarithm of the rotary base."""

    attention: Attention
    log_theta: float

    @property
    def unknowns(self) -> int:
        """Numbers in all."""
        part = self.attention
        return part.query.size + part.key.size + part.value.size + part.output.size + 1

    def split(self, flat: Array) -> tuple[Array, Array, Array, Array, float]:
        """A step as query, key, value, output and the logarithm."""
        part = self.attention
        shapes = part.query.shape, part.key.shape, part.value.shape, part.output.shape
        cuts = np.cumsum([a * b for a, b in shapes])
        q, k, v, o, theta = np.split(flat, cuts)
        return (
            q.reshape(shapes[0]),
            k.reshape(shapes[1]),
            v.reshape(shapes[2]),
            o.reshape(shapes[3]),
            float(theta[0]),
        )

    def moved(self, step: Array) -> AttentionState:
        """The state plus a step."""
        q, k, v, o, theta = self.split(step)
        part = self.attention
        moved = replace(
            part, query=part.query + q, key=part.key + k, value=part.value + v, output=part.output + o
        )
        return AttentionState(moved, self.log_theta + theta)


@dataclass(frozen=True, eq=False)
class Prompted:
    """Prompts of one length: normed rows (B, N, d), the last rows themselves (B, d), and the states that were
    seen (B, d)."""

    normed: Array
    last: Array
    seen: Array


class _Pass:
    """One forward pass over prompts of one length."""

    def __init__(self, state: AttentionState, data: Prompted, after: AfterAttention) -> None:
        part = state.attention
        self.part, self.data = part, data
        batch, length, _ = data.normed.shape
        width, each = part.head_width, part.shared_by
        self.group = np.repeat(np.arange(part.groups), each)
        frequencies = Rotary(np.exp(state.log_theta)).frequencies(width)
        distance = (length - 1) - np.arange(length)
        angles = distance[:, None] * frequencies  # (N, planes)
        self.turn = np.exp(1j * angles)
        q = _planes((data.normed[:, -1] @ part.query.T).reshape(batch, part.heads, width))  # (B, H, planes)
        k = _planes((data.normed @ part.key.T).reshape(batch, length, part.groups, width))[:, :, self.group]
        v = (data.normed @ part.value.T).reshape(batch, length, part.groups, width)[:, :, self.group]
        turned = q[:, None] * self.turn[:, None]  # (B, N, H, planes)
        products = k.conj() * turned
        scale = 1.0 / np.sqrt(width)
        scores = scale * products.real.sum(axis=-1)  # (B, N, H)
        self.weights = np.moveaxis(softmax(np.moveaxis(scores, 1, 2)), 2, 1)
        self.mixed = np.einsum("bnh,bnhe->bhe", self.weights, v)
        self.rows = np.einsum("bnh,bnj->bhj", self.weights, data.normed)
        self.output = part.output.reshape(-1, part.heads, width)
        added = np.einsum("ohe,bhe->bo", self.output, self.mixed)
        self.seen, self.jacobian = after(data.last + added)
        # ds/dq as real coordinates, ds/dk, ds/dlog theta
        self.by_query = scale * _real(k * self.turn.conj()[:, None])  # (B, N, H, d_h)
        self.by_key = scale * _real(turned)
        slopes = -(2.0 * np.arange(width // 2) / width) * frequencies
        self.by_theta = -scale * np.einsum("bnhp,n,p->bnh", products.imag, distance.astype(float), slopes)
        self.effect = self.weights[..., None] * (v - self.mixed[:, None])  # (B, N, H, d_h): dm/ds

    def forward(self, q: Array, k: Array, v: Array, o: Array, theta: float) -> Array:
        part, z = self.part, self.data.normed
        batch, length, _ = z.shape
        dq = (z[:, -1] @ q.T).reshape(batch, part.heads, -1)
        dk = (z @ k.T).reshape(batch, length, part.groups, -1)[:, :, self.group]
        scores = np.einsum("bnhe,bhe->bnh", self.by_query, dq) + np.einsum("bnhe,bnhe->bnh", self.by_key, dk)
        scores = scores + self.by_theta * theta
        value = v.reshape(part.groups, -1, part.width)[self.group]
        mixed = np.einsum("bnhe,bnh->bhe", self.effect, scores) + np.einsum("hej,bhj->bhe", value, self.rows)
        added = np.einsum("ohe,bhe->bo", self.output, mixed) + np.einsum(
            "ohe,bhe->bo", o.reshape(self.output.shape), self.mixed
        )
        return np.asarray(np.einsum("boi,bi->bo", self.jacobian, added))

    def backward(self, weights: Array) -> Array:
        part, z = self.part, self.data.normed
        added = np.einsum("boi,bo->bi", self.jacobian, weights)
        o = np.einsum("bo,bhe->ohe", added, self.mixed).reshape(part.output.shape)
        mixed = np.einsum("ohe,bo->bhe", self.output, added)
        v = _by_group(np.einsum("bhe,bhj->hej", mixed, self.rows), part)
        scores = np.einsum("bnhe,bhe->bnh", self.effect, mixed)
        q = np.einsum("bnh,bnhe,bj->hej", scores, self.by_query, z[:, -1], optimize=True)
        k = _by_group(np.einsum("bnh,bnhe,bnj->hej", scores, self.by_key, z, optimize=True), part)
        theta = float((scores * self.by_theta).sum())
        return np.concatenate([q.ravel(), k.ravel(), v.ravel(), o.ravel(), [theta]])

    def dense(self) -> Array:
        """The Jacobian (B·d, unknowns)."""
        part, z = self.part, self.data.normed
        batch, _, d = z.shape
        written = np.einsum("boi,ihe->bohe", self.jacobian, self.output)
        scores = np.einsum("bohe,bnhe->bohn", written, self.effect)
        q = np.einsum("bohe,bj->bohej", np.einsum("bohn,bnhe->bohe", scores, self.by_query), z[:, -1])
        k = np.einsum("bohn,bnhe,bnj->bohej", scores, self.by_key, z, optimize=True)
        v = np.einsum("bohe,bhj->bohej", written, self.rows)
        shared = (batch, d, part.groups, part.shared_by, part.head_width, d)
        k, v = k.reshape(shared).sum(axis=3), v.reshape(shared).sum(axis=3)
        o = np.einsum("boi,bhe->boihe", self.jacobian, self.mixed)
        theta = np.einsum("bohn,bnh->bo", scores, self.by_theta)
        return np.concatenate([piece.reshape(batch * d, -1) for piece in (q, k, v, o, theta)], axis=1)


def _planes(x: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    return np.asarray(first + 1j * second)


def _real(x: Array) -> Array:
    return np.concatenate([x.real, x.imag], axis=-1)


def _by_group(per_head: Array, part: Attention) -> Array:
    """(H, d_h, d) added up over the heads of a group."""
    return np.asarray(per_head.reshape(part.groups, part.shared_by, part.head_width, -1).sum(axis=1))


@dataclass(frozen=True, eq=False)
class AttentionFit:
    """Least squares over prompts of several lengths."""

    data: Sequence[Prompted]
    after: AfterAttention

    def residual(self, state: AttentionState, /) -> Array:
        return np.concatenate(
            [(_Pass(state, part, self.after).seen - part.seen).ravel() for part in self.data]
        )

    def moved(self, state: AttentionState, step: Array, /) -> AttentionState:
        return state.moved(step)

    def linearise(self, state: AttentionState, /) -> Linearisation:
        passes = [_Pass(state, part, self.after) for part in self.data]
        if state.unknowns <= _DENSE:
            return DenseJacobian(np.concatenate([each.dense() for each in passes]))
        cuts = np.cumsum([part.seen.size for part in self.data])[:-1]

        def forward(step: Array) -> Array:
            return np.concatenate([each.forward(*state.split(step)).ravel() for each in passes])

        def backward(weights: Array) -> Array:
            pieces = np.split(weights, cuts)
            total = np.zeros(state.unknowns)
            for each, piece in zip(passes, pieces, strict=True):
                total += each.backward(piece.reshape(each.data.seen.shape))
            return total

        blocks = _Blocks(state, passes)
        return Products(state.unknowns, forward, backward, blocks.squares, blocks.inverse)


class _Blocks:
    """The part of JᵀJ inside the query, key, value and output of one head or group: blocks of d_h·d unknowns
    each."""

    def __init__(self, state: AttentionState, passes: Sequence[_Pass]) -> None:
        self.state = state
        part = state.attention
        heads, groups, width, d = part.heads, part.groups, part.head_width, part.width
        size = width * d
        q, o = np.zeros((heads, size, size)), np.zeros((heads, size, size))
        k, v = np.zeros((groups, size, size)), np.zeros((groups, size, size))
        theta = 0.0
        for each in passes:
            z = each.data.normed
            written = np.einsum("boi,ihe->bohe", each.jacobian, each.output)
            scores = np.einsum("bohe,bnhe->bohn", written, each.effect)
            asked = np.einsum("bohn,bnhe->bohe", scores, each.by_query)
            theta += float((np.einsum("bohn,bnh->bo", scores, each.by_theta) ** 2).sum())
            for h in range(heads):
                q[h] += _squared(np.einsum("boe,bj->boej", asked[:, :, h], z[:, -1]), size)
                o[h] += _squared(np.einsum("boi,be->boie", each.jacobian, each.mixed[:, h]), size)
            for g in range(groups):
                own = np.flatnonzero(each.group == g)
                k[g] += _squared(
                    np.einsum(
                        "bohn,bnhe,bnj->boej", scores[:, :, own], each.by_key[:, :, own], z, optimize=True
                    ),
                    size,
                )
                v[g] += _squared(
                    np.einsum("bohe,bhj->boej", written[:, :, own], each.rows[:, own], optimize=True), size
                )
        self.blocks = q, k, v, o
        self.theta = theta
        diagonals = [np.einsum("hii->hi", block) for block in self.blocks]
        outs = diagonals[3].reshape(heads, d, width).transpose(1, 0, 2)
        self.squares = np.concatenate([*(piece.ravel() for piece in diagonals[:3]), outs.ravel(), [theta]])

    def inverse(self, damping: Array) -> _BlockInverse:
        """The inverse of the blocks plus damping."""
        return _BlockInverse(self.state, self.blocks, self.theta, damping)


def _squared(columns: Array, size: int) -> Array:
    flat = columns.reshape(-1, size)
    return np.asarray(flat.T @ flat)


class _BlockInverse:
    def __init__(
        self, state: AttentionState, blocks: tuple[Array, ...], theta: float, damping: Array
    ) -> None:
        self.state, self.theta = state, theta + float(damping[-1])
        added = self._rows(damping)
        self.factors = []
        for piece, extra in zip(blocks, added, strict=True):
            floor = _FLOOR * np.einsum("hii->h", piece) / piece.shape[1]
            self.factors.append(
                [
                    cho_factor(block + np.diag(more + least))
                    for block, more, least in zip(piece, extra, floor, strict=True)
                ]
            )

    def _rows(self, flat: Array) -> list[Array]:
        """A flat step as (heads or groups, d_h·d) for queries, keys, values and outputs."""
        part = self.state.attention
        q, k, v, o, _ = self.state.split(flat)
        outs = o.reshape(part.width, part.heads, part.head_width).transpose(1, 0, 2)
        return [
            q.reshape(part.heads, -1),
            k.reshape(part.groups, -1),
            v.reshape(part.groups, -1),
            outs.reshape(part.heads, -1),
        ]

    def __call__(self, vector: Array) -> Array:
        part = self.state.attention
        solved = [
            np.array([cho_solve(factor, row) for factor, row in zip(factors, rows, strict=True)])
            for factors, rows in zip(self.factors, self._rows(vector), strict=True)
        ]
        outs = solved[3].reshape(part.heads, part.width, part.head_width).transpose(1, 0, 2)
        return np.concatenate(
            [*(piece.ravel() for piece in solved[:3]), outs.ravel(), [vector[-1] / self.theta]]
        )
