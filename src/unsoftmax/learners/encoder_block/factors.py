"""The Jacobian of a block's answers as factors, one an array of the parameters.

Every array T of the parameters enters the answer of a sequence as out += M T v, so that its part of the
Jacobian is M ⊗ v with one M and one v a sequence. The normal matrix, and a preconditioner mean(MᵀM) ⊗ mean(v
vᵀ), follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.forward_pass import Pass
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.solvers.least_squares.joint_refinement import Inverse

__all__ = ["Factor", "Means", "block_factors", "cross", "kronecker_inverse"]

_MEMORY = 2e7  # numbers held at once while a normal matrix is made
_FLOOR = 1e-7  # relative eigenvalue of a factor of the preconditioner that counts as none


@dataclass(frozen=True)
class Means:
    """Sums over n sequences: MᵀM (r, r) and v vᵀ (c, c)."""

    left: Array
    right: Array
    count: int
    swapped: bool

    @property
    def size(self) -> int:
        return len(self.left) * len(self.right)


@dataclass(frozen=True)
class Factor:
    """Columns of one array: M (n, o, r) and v (n, c) for entries (r, c); `swapped` when M belongs to the
    second axis."""

    M: Array
    v: Array
    swapped: bool = False

    @property
    def size(self) -> int:
        return int(self.M.shape[2] * self.v.shape[1])

    def squares(self) -> Array:
        """Diagonal of this array's part of JᵀJ."""
        found = (self.M**2).sum(axis=1).T @ self.v**2
        return np.asarray((found.T if self.swapped else found).ravel())

    def means(self) -> Means:
        flat = self.M.reshape(-1, self.M.shape[2])
        return Means(flat.T @ flat, self.v.T @ self.v, len(self.M), self.swapped)


def block_factors(
    shape: BlockShape, state: BlockState, there: Pass, weights: Array, eps: Array
) -> list[Factor]:
    """In the order of the vector, heads apart. weights: (n,), of residuals. eps: (n, d, 2), columns of the
    logarithms of both eps."""
    (n, m), d = there.out.shape, shape.width
    basis, k = shape.basis, shape.basis.shape[1]
    one = weights[:, None, None]
    bent = state.outer[:, :-1] * shape.activation.first(there.hidden)[:, None]  # (n, m, J)
    inner = state.inner[:, :-1]
    shrink = np.broadcast_to(np.eye(k), (n, k, k))  # a norm's derivative
    if shape.normed:
        shrink = shrink - there.middle[:, :, None] * there.middle[:, None] / d
        shrink = shrink / there.middle_size[:, :, None]
    active = np.column_stack([shape.activation(there.hidden), np.ones(n)])
    seen = np.column_stack([there.middle, np.ones(n)])
    tail: list[Factor] = []
    if shape.norm_first:
        by_network = np.broadcast_to(np.eye(m), (n, m, m)) * one
        by_hidden = bent * one
        by_y = by_network @ state.readout if state.readout.size else by_network
        by_y = by_y + (by_hidden @ inner) @ (shrink @ basis.T)
        tail = [Factor(by_network, there.stream)] if state.readout.size else []
    else:
        last = np.eye(k) - there.last[:, :, None] * there.last[:, None] / d
        by_network = (state.gains[1][:, None] * basis) @ (last / there.last_size[:, :, None]) * one
        by_hidden = by_network @ bent
        skip = basis.T @ (state.gains[0][:, None] * basis)
        by_y = (by_network @ skip + by_hidden @ inner) @ shrink
        first_gain = (by_network @ basis.T) * (there.middle @ basis.T)[:, None]
        second_gain = np.eye(d) * (there.last @ basis.T)[:, None] * one
        bias = np.broadcast_to(np.eye(d), (n, d, d)) * one
        tail = [Factor(part, np.ones((n, 1))) for part in (first_gain, second_gain, bias)]
    heads = [_head_factors(state, there, by_y, h) for h in range(state.heads)]
    factors = [
        *(head[0] for head in heads),
        *(head[1] for head in heads),
        *(head[2] for head in heads),
        Factor(by_y, there.lifted),
        Factor(by_hidden, seen),
        Factor(by_network, active),
        Factor(eps * one, np.ones((n, 1))),
        *tail,
    ]
    return [factor for factor in factors if factor.size]


def _head_factors(state: BlockState, there: Pass, by_y: Array, h: int) -> tuple[Factor, Factor, Factor]:
    """Queries, keys and values of one head."""
    r = state.keys.shape[1]
    by_value = by_y @ state.outputs[:, h * r : (h + 1) * r]  # (n, o, r)
    away = there.tokens - there.mixed[h][:, None]  # (n, N, p)
    by_score = (by_value @ state.values[h]) @ away.transpose(0, 2, 1) * there.weights[h][:, None]  # (n, o, N)
    by_tokens = by_score @ there.tokens  # (n, o, p)
    return (
        Factor(by_tokens @ state.keys[h].T, there.asking),
        Factor(by_tokens, there.projected[h], swapped=True),
        Factor(by_value, there.mixed[h]),
    )


def cross(first: Factor, second: Factor) -> Array:
    """JᵢᵀJⱼ of two arrays, in the order of their entries."""
    (n, _, r), c = first.M.shape, first.v.shape[1]
    s, e = second.M.shape[2], second.v.shape[1]
    found = np.empty((r, c, s, e))
    chunk = max(1, int(_MEMORY / (n * c * s + 1)))
    for start in range(0, r, chunk):
        part = slice(start, min(start + chunk, r))
        inner = first.M[:, :, part].transpose(0, 2, 1) @ second.M  # (n, r', s)
        spread = (first.v[:, None, :, None] * inner[:, :, None]).reshape(n, -1)  # (n, r'·c·s)
        found[part] = (spread.T @ second.v).reshape(-1, c, s, e)
    axes = (*((1, 0) if first.swapped else (0, 1)), *((3, 2) if second.swapped else (2, 3)))
    return found.transpose(axes).reshape(r * c, s * e)


def kronecker_inverse(means: Sequence[Means], damping: float) -> Inverse:
    """(Σ MᵀM ⊗ v vᵀ + damping)⁻¹ of one array, with the sum of products taken as the product of means."""
    left = np.sum([part.left for part in means], axis=0) / sum(part.count for part in means)
    right = np.sum([part.right for part in means], axis=0)
    a, E = np.linalg.eigh(left)
    b, F = np.linalg.eigh(right)
    a, b = np.maximum(a, _FLOOR * a[-1]), np.maximum(b, _FLOOR * b[-1])
    scale = 1.0 / (a[:, None] * b + damping + 1e-300)
    swapped = means[0].swapped

    def apply(vector: Array) -> Array:
        block = vector.reshape(len(b), len(a)).T if swapped else vector.reshape(len(a), len(b))
        solved = E @ (scale * (E.T @ block @ F)) @ F.T
        return np.asarray((solved.T if swapped else solved).ravel())

    return apply
