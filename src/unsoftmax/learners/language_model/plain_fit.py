"""All parameters of a one-layer decoder without rotary positions, fitted to the states of its prompts.

The layer is a pre-norm block of the coordinates that norms see, rows are moved by what their positions add,
and the final norm follows. The Jacobian is that of the block, seen through the final norm, and a column for
every coordinate of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.encoder_block.factors import Factor, block_factors, cross, kronecker_inverse
from unsoftmax.learners.encoder_block.forward_pass import Pass, forward_pass
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian, Inverse, Linearisation

__all__ = ["Answered", "LastPositionFit", "PlainFit", "PlainState"]

_DIFFERENCE = 1e-6  # step of the columns of log eps of the block


@dataclass(frozen=True, eq=False)
class PlainState:
    """block: of k coordinates. positions (P, k): what is added to the first rows. log_last_eps: of the final
    norm."""

    block: BlockState
    positions: Array
    log_last_eps: float

    @property
    def unknowns(self) -> int:
        """Numbers in all."""
        return self.block.unknowns + self.positions.size + 1

    def moved(self, step: Array) -> PlainState:
        """The state plus a step."""
        block, positions, last = np.split(
            step, [self.block.unknowns, self.block.unknowns + self.positions.size]
        )
        return PlainState(
            self.block.moved(block),
            self.positions + positions.reshape(self.positions.shape),
            self.log_last_eps + float(last[0]),
        )


@dataclass(frozen=True, eq=False)
class Answered:
    """Prompts (B, N, k) of one length, and the states (B, k) that were seen. eps: of the final norm,
    about."""

    rows: Array
    seen: Array
    eps: float

    @cached_property
    def weights(self) -> Array:
        """(B, 1): sizes of streams below one, by whose inverse the final norm enlarges rounding."""
        short = np.maximum(1.0 - (self.seen * self.seen).mean(axis=1, keepdims=True), EPS)
        return np.asarray(np.minimum(1.0, np.sqrt(self.eps / short)))


def _states(shape: BlockShape, state: PlainState, rows: Array) -> Array:
    """What the decoder says of prompts (B, N, k), no longer than positions are known."""
    return _normed(forward_pass(shape, state.block, rows + state.positions[: rows.shape[1]]).out, state)[0]


def _normed(stream: Array, state: PlainState) -> tuple[Array, Array]:
    size = np.sqrt((stream * stream).mean(axis=1, keepdims=True) + np.exp(state.log_last_eps))
    return stream / size, size


@dataclass(frozen=True, eq=False)
class PlainFit:
    """Least squares over prompts of several lengths."""

    shape: BlockShape
    data: Sequence[Answered]

    def residual(self, state: PlainState, /) -> Array:
        return np.concatenate(
            [
                (part.weights * (_states(self.shape, state, part.rows) - part.seen)).ravel()
                for part in self.data
            ]
        )

    def moved(self, state: PlainState, step: Array, /) -> PlainState:
        return state.moved(step)

    def linearise(self, state: PlainState, /) -> Linearisation:
        return _Jacobian([self.factors(state, part) for part in self.data])

    def factors(self, state: PlainState, data: Answered) -> list[Factor]:
        """One for every array of the block, then one a position, then the final eps."""
        rows = data.rows + state.positions[: data.rows.shape[1]]
        there = forward_pass(self.shape, state.block, rows)
        n, k = there.out.shape
        eps = np.stack(
            [
                (forward_pass(self.shape, _eps_moved(state.block, i), rows).out - there.out) / _DIFFERENCE
                for i in range(2)
            ],
            axis=2,
        )
        found = block_factors(self.shape, state.block, there, np.ones(n), eps)
        found += _position_factors(state, there, rows, found)
        seen, size = _normed(there.out, state)
        final = (np.eye(k) - seen[:, :, None] * seen[:, None] / k) / size[:, :, None]
        last = -0.5 * np.exp(state.log_last_eps) * (seen / size**2)[:, :, None]
        weights = data.weights[:, :, None]
        through = [replace(each, M=weights * (final @ each.M)) for each in found]
        return [*through, Factor(weights * last, np.ones((n, 1)))]


def _eps_moved(block: BlockState, which: int) -> BlockState:
    moved = block.log_eps.copy()
    moved[which] += _DIFFERENCE
    return replace(block, log_eps=moved)


def _position_factors(state: PlainState, there: Pass, rows: Array, found: Sequence[Factor]) -> list[Factor]:
    """One for every position: how the stream moves with the row there. found: those of the block, heads'
    queries first, then keys, values, and the outputs, whose M is the derivative by the stream behind
    attention."""
    block, heads = state.block, state.block.heads
    n, length, k = rows.shape
    by_token = np.zeros((length, n, k, k))
    for h in range(heads):
        by_mixed = found[2 * heads + h].M @ block.values[h]  # (n, o, k)
        away = there.tokens - there.mixed[h][:, None]
        by_score = by_mixed @ away.transpose(0, 2, 1) * there.weights[h][:, None]  # (n, o, N)
        asked = there.projected[h] @ block.keys[h]  # (n, k): a token's score by the token
        for i in range(length):
            by_token[i] += there.weights[h][:, i, None, None] * by_mixed
            by_token[i] += by_score[:, :, i, None] * asked[:, None]
        by_token[-1] += found[h].M @ block.queries[h, :, :-1]
    square = (rows * rows).mean(axis=2, keepdims=True) + np.exp(block.log_eps[0])
    factors = []
    for i in range(length):
        token = there.tokens[:, i]
        through = (by_token[i] - (by_token[i] @ token[..., None]) * token[:, None] / k) / np.sqrt(
            square[:, i, :, None]
        )
        factors.append(through + (found[3 * heads].M if i == length - 1 else 0.0))
    unused = np.zeros((n, k, k))
    return [
        Factor(factors[i] if i < length else unused, np.ones((n, 1))) for i in range(len(state.positions))
    ]


@dataclass(frozen=True, eq=False)
class LastPositionFit:
    """Least squares for one position beyond those of `known`, from prompts that end there."""

    shape: BlockShape
    known: PlainState
    data: Answered

    def with_position(self, position: Array) -> PlainState:
        """The known state with one position more."""
        return replace(self.known, positions=np.vstack([self.known.positions, position]))

    def residual(self, position: Array, /) -> Array:
        return PlainFit(self.shape, [self.data]).residual(self.with_position(position))

    def moved(self, position: Array, step: Array, /) -> Array:
        return np.asarray(position + step)

    def linearise(self, position: Array, /) -> Linearisation:
        state = self.with_position(position)
        factors = PlainFit(self.shape, [self.data]).factors(state, self.data)
        own = factors[len(factors) - 2]  # the last position; behind it is the final eps
        return DenseJacobian(own.M.reshape(-1, len(position)))


@dataclass(frozen=True, eq=False)
class _Jacobian:
    """One list of factors for every length, all in the order of the parameters."""

    groups: Sequence[Sequence[Factor]]

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *np.cumsum([factor.size for factor in self.groups[0]]).tolist()]

    @property
    def unknowns(self) -> int:
        return self._ends[-1]

    def _pieces(self, step: Array) -> list[Array]:
        return np.split(step, self._ends[1:-1])

    def forward(self, step: Array, /) -> Array:
        pieces = self._pieces(step)
        parts = []
        for group in self.groups:
            total = sum(_forward(factor, piece) for factor, piece in zip(group, pieces, strict=True))
            parts.append(np.asarray(total).ravel())
        return np.concatenate(parts)

    def backward(self, residual: Array, /) -> Array:
        found, start = np.zeros(self.unknowns), 0
        for group in self.groups:
            n, o = group[0].M.shape[:2]
            part = residual[start : start + n * o].reshape(n, o)
            start += n * o
            found += np.concatenate([_backward(factor, part) for factor in group])
        return found

    def normal(self) -> Array:
        total = np.zeros((self.unknowns, self.unknowns))
        ends = self._ends
        for group in self.groups:
            for i, first in enumerate(group):
                for j, second in enumerate(group[: i + 1]):
                    total[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] += cross(first, second)
        lower = np.tril(total, -1)
        return np.asarray(total - np.triu(total, 1) + lower.T)

    def diagonal(self) -> Array:
        return np.asarray(sum(np.concatenate([f.squares() for f in group]) for group in self.groups))

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        ends = self._ends
        inverses = [
            kronecker_inverse(
                [group[i].means() for group in self.groups], float(damping[ends[i] : ends[i + 1]].mean())
            )
            for i in range(len(self.groups[0]))
        ]

        def apply(vector: Array) -> Array:
            return np.concatenate(
                [inverse(piece) for inverse, piece in zip(inverses, self._pieces(vector), strict=True)]
            )

        return apply


def _forward(factor: Factor, step: Array) -> Array:
    columns = factor.v.shape[1]
    entries = step.reshape(columns, -1) if factor.swapped else step.reshape(-1, columns).T
    return np.asarray((factor.M @ (factor.v @ entries)[:, :, None])[:, :, 0])


def _backward(factor: Factor, weights: Array) -> Array:
    found = (weights[:, None] @ factor.M)[:, 0].T @ factor.v
    return np.asarray((found.T if factor.swapped else found).ravel())
