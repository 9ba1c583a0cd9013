"""The Jacobian of a block's answers. Products run through the block; the normal matrix and the preconditioner
are made of one factor per array of the parameters (see `factors`), which costs d times as much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.factors import Factor, Means, block_factors, cross, kronecker_inverse
from unsoftmax.learners.encoder_block.forward_pass import Pass
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.solvers.least_squares.joint_refinement import Inverse

__all__ = ["BlockJacobian", "Group", "GroupJacobian", "PooledJacobian"]


@dataclass(frozen=True)
class GroupJacobian:
    """Sequences of one length. weights: (n,), of residuals. eps: (n, d, 2), columns of the logarithms of both
    eps."""

    shape: BlockShape
    state: BlockState
    there: Pass
    weights: Array
    eps: Array

    def factors(self) -> list[Factor]:
        """One an array of the parameters, heads apart, in the order of the vector."""
        return block_factors(self.shape, self.state, self.there, self.weights, self.eps)

    @property
    def answers(self) -> tuple[int, int]:
        """Shape of the answers."""
        n, o = self.there.out.shape
        return n, o

    def normal(self) -> Array:
        """JᵀJ block by block: Σ_n (M_iᵀM_j) ⊗ (v_i v_jᵀ), without the Jacobian itself, o times cheaper."""
        factors = self.factors()
        ends = np.cumsum([0, *(factor.size for factor in factors)])
        total = np.zeros((ends[-1], ends[-1]))
        for i, first in enumerate(factors):
            rows = slice(ends[i], ends[i + 1])
            for j, second in enumerate(factors[: i + 1]):
                total[rows, ends[j] : ends[j + 1]] = cross(first, second)
        lower = np.tril(total, -1)
        return np.asarray(total - np.triu(total, 1) + lower.T)

    def diagonal(self) -> Array:
        """The diagonal of JᵀJ."""
        return np.concatenate([factor.squares() for factor in self.factors()])

    def means(self) -> list[Means]:
        """What a preconditioner is made of, one an array of the parameters."""
        return [factor.means() for factor in self.factors()]

    @cached_property
    def _slopes(self) -> Array:
        return self.shape.activation.first(self.there.hidden)

    @cached_property
    def _active(self) -> Array:
        return _extended(self.shape.activation(self.there.hidden))

    @cached_property
    def _middle(self) -> Array:
        return _extended(self.there.middle)

    def forward(self, step: BlockState) -> Array:
        """(n, d)."""
        shape, state, there, basis = self.shape, self.state, self.there, self.shape.basis
        queries = there.asking @ step.queries.transpose(0, 2, 1)
        directions = queries @ state.keys + there.projected @ step.keys
        mixed = self._sum_tokens(self._along_tokens(directions))
        lifted = mixed @ state.values.transpose(0, 2, 1) + there.mixed @ step.values.transpose(0, 2, 1)
        y = np.concatenate([*lifted], axis=1) @ state.outputs[:, :-1].T + there.lifted @ step.outputs.T
        middle = self._through_norm(y @ basis if shape.norm_first else y, there.middle, there.middle_size)
        hidden = middle @ state.inner[:, :-1].T + self._middle @ step.inner.T
        network = (self._slopes * hidden) @ state.outer[:, :-1].T + self._active @ step.outer.T
        if shape.norm_first and state.readout.size:
            out = y @ state.readout.T + there.stream @ step.readout.T + network
        elif shape.norm_first:
            out = y + network
        else:
            skip = (middle @ basis.T) * state.gains[0] + (there.middle @ basis.T) * step.gains[0]
            last = self._through_norm(skip @ basis + network, there.last, there.last_size)
            out = (last @ basis.T) * state.gains[1] + (there.last @ basis.T) * step.gains[1] + step.gains[2]
        return np.asarray((out + self.eps @ step.log_eps) * self.weights[:, None])

    def backward(self, residual: Array) -> BlockState:
        """residual: (n, d)."""
        shape, state, there, basis = self.shape, self.state, self.there, self.shape.basis
        out = residual * self.weights[:, None]
        log_eps, gains = np.einsum("no,noe->e", out, self.eps), np.empty((3, 0))
        by_network, skip = out, np.zeros(0)
        if not shape.norm_first:
            gains = np.stack(
                [np.zeros(shape.width), (out * (there.last @ basis.T)).sum(axis=0), out.sum(axis=0)]
            )
            by_network = self._through_norm((out * state.gains[1]) @ basis, there.last, there.last_size)
            skip = by_network @ basis.T
            gains[0] = (skip * (there.middle @ basis.T)).sum(axis=0)
        by_hidden = (by_network @ state.outer[:, :-1]) * self._slopes
        by_middle = by_hidden @ state.inner[:, :-1]
        if not shape.norm_first:
            by_middle = by_middle + (skip * state.gains[0]) @ basis
        by_y = self._through_norm(by_middle, there.middle, there.middle_size)
        readout = state.readout
        if shape.norm_first:
            by_y = (out @ readout if readout.size else out) + by_y @ basis.T
            readout = out.T @ there.stream if readout.size else readout
        r = state.keys.shape[1]
        by_values = (by_y @ state.outputs[:, :-1]).reshape(len(out), -1, r).transpose(1, 0, 2)
        by_scores = self._sum_tokens(self._along_tokens(by_values @ state.values))
        by_projected = by_scores @ state.keys.transpose(0, 2, 1)
        return BlockState(
            by_projected.transpose(0, 2, 1) @ there.asking,
            there.projected.transpose(0, 2, 1) @ by_scores,
            by_values.transpose(0, 2, 1) @ there.mixed,
            by_y.T @ there.lifted,
            by_hidden.T @ self._middle,
            by_network.T @ self._active,
            log_eps,
            gains,
            readout,
        )

    def _through_norm(self, move: Array, normed: Array, size: Array) -> Array:
        """A norm's derivative, which is symmetric."""
        if not self.shape.normed:
            return move
        along = (move * normed).sum(axis=1, keepdims=True) / self.shape.width
        return np.asarray((move - along * normed) / size)

    def _along_tokens(self, directions: Array) -> Array:
        """(H, n, N) products of directions (H, n, p) with all tokens, less their weighted mean, times the
        weights: the derivative of the softmax, which is symmetric."""
        there = self.there
        along = np.matmul(there.tokens, directions.transpose(1, 2, 0)).transpose(2, 0, 1)
        mean = (there.weights * along).sum(axis=2, keepdims=True)
        return np.asarray(there.weights * (along - mean))

    def _sum_tokens(self, weights: Array) -> Array:
        """(H, n, p): tokens summed with weights (H, n, N)."""
        return np.asarray(np.matmul(weights.transpose(1, 0, 2), self.there.tokens).transpose(1, 0, 2))


def _extended(values: Array) -> Array:
    return np.column_stack([values, np.ones(len(values))])


@dataclass(frozen=True)
class PooledJacobian:
    """Sequences of one length that are answered with the mean over their rows. each: of as many sequences as
    there are rows in all, every row as the last one of its sequence once. rows: of a sequence."""

    each: GroupJacobian
    rows: int

    @property
    def answers(self) -> tuple[int, int]:
        """Shape of the answers."""
        n, o = self.each.answers
        return n // self.rows, o

    def forward(self, step: BlockState) -> Array:
        """(n, d)."""
        n, o = self.answers
        return np.asarray(self.each.forward(step).reshape(n, self.rows, o).mean(axis=1))

    def backward(self, residual: Array) -> BlockState:
        """residual: (n, d)."""
        return self.each.backward(np.repeat(residual, self.rows, axis=0) / self.rows)

    @cached_property
    def _dense(self) -> Array:
        """(n·o, unknowns): a mean of products M ⊗ v is none, so that the Jacobian itself is made."""
        n, o = self.answers
        parts = []
        for factor in self.each.factors():
            M = factor.M.reshape(n, self.rows, -1).transpose(0, 2, 1)  # (n, o·r, rows)
            found = np.matmul(M, factor.v.reshape(n, self.rows, -1)) / self.rows
            found = found.reshape(n, o, factor.M.shape[2], -1)
            found = found.transpose(0, 1, 3, 2) if factor.swapped else found
            parts.append(found.reshape(n * o, -1))
        return np.concatenate(parts, axis=1)

    def normal(self) -> Array:
        """JᵀJ."""
        return np.asarray(self._dense.T @ self._dense)

    def diagonal(self) -> Array:
        """The diagonal of JᵀJ."""
        return np.asarray(np.einsum("np,np->p", self._dense, self._dense))

    def means(self) -> list[Means]:
        """Those of single rows: rows of one sequence are taken for independent."""
        return [replace(part, left=part.left / self.rows**2) for part in self.each.means()]


Group: TypeAlias = GroupJacobian | PooledJacobian


@dataclass(frozen=True)
class BlockJacobian:
    """The Jacobian over groups of sequences, each of one length."""

    groups: tuple[Group, ...]
    state: BlockState

    @property
    def unknowns(self) -> int:
        return self.state.unknowns

    def forward(self, step: Array, /) -> Array:
        parts = self.state.unpacked(step)
        return np.concatenate([group.forward(parts).ravel() for group in self.groups])

    def backward(self, residual: Array, /) -> Array:
        found, start = np.zeros(self.unknowns), 0
        for group in self.groups:
            n, o = group.answers
            found += group.backward(residual[start : start + n * o].reshape(n, o)).packed()
            start += n * o
        return found

    def normal(self) -> Array:
        total = np.zeros((self.unknowns, self.unknowns))
        for group in self.groups:
            total += group.normal()
        return total

    def diagonal(self) -> Array:
        return np.asarray(sum(group.diagonal() for group in self.groups))

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        inverses, ends = [], [0]
        for same in zip(*(group.means() for group in self.groups), strict=True):
            start = ends[-1]
            ends.append(start + same[0].size)
            inverses.append(kronecker_inverse(same, float(damping[start : ends[-1]].mean())))

        def apply(vector: Array) -> Array:
            parts = [inverse(vector[ends[i] : ends[i + 1]]) for i, inverse in enumerate(inverses)]
            return np.concatenate(parts)

        return apply
