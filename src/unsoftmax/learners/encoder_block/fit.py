"""Joint refinement of a whole block on sequences of any length: residuals, and the Jacobian as products.

Every array T of the parameters enters the answer of a sequence as out += M T v, so that its part of the
Jacobian is
M ⊗ v with one M and one v a sequence. Products with the Jacobian, and its preconditioner mean(MᵀM) ⊗ mean(v
vᵀ), follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.models.base import softmax
from unsoftmax.solvers.joint_refinement import Inverse, Linearisation

__all__ = ["BlockFit", "Sequences"]

_DIFFERENCE = 1e-6  # step of the two columns of log eps, by differences
_MEMORY = 2e7  # numbers held at once while a normal matrix is made
_FLOOR = 1e-7  # relative eigenvalue of a factor of the preconditioner that counts as none


@dataclass(frozen=True)
class Sequences:
    """Sequences of one length (n, N, d), their answers (n, d), and weights (n,) of their residuals."""

    rows: Array
    answers: Array
    weights: Array


@dataclass(frozen=True)
class _Pass:
    """What one forward pass keeps. Head axis first: (H, n, ...)."""

    out: Array
    tokens: Array
    asking: Array
    projected: Array
    weights: Array
    mixed: Array
    lifted: Array
    middle: Array
    middle_size: Array
    hidden: Array
    last: Array
    last_size: Array


@dataclass(frozen=True)
class _Factor:
    """Columns of one array: M (n, o, r) and v (n, c) for entries (r, c); `swapped` when M belongs to the
    second axis."""

    M: Array
    v: Array
    swapped: bool = False

    @property
    def size(self) -> int:
        return int(self.M.shape[2] * self.v.shape[1])

    def forward(self, step: Array) -> Array:
        if self.swapped:
            moved = self.v @ step.reshape(self.v.shape[1], -1)
        else:
            moved = self.v @ step.reshape(-1, self.v.shape[1]).T
        return np.asarray((self.M @ moved[:, :, None])[:, :, 0])

    def backward(self, weights: Array) -> Array:
        back = (weights[:, None] @ self.M)[:, 0]
        found = back.T @ self.v
        return np.asarray((found.T if self.swapped else found).ravel())

    def squares(self) -> Array:
        found = (self.M**2).sum(axis=1).T @ self.v**2
        return np.asarray((found.T if self.swapped else found).ravel())


@dataclass(frozen=True)
class BlockFit:
    """Least squares of a block's answers over sequences of several lengths. free_eps: whether both eps may
    move."""

    shape: BlockShape
    data: tuple[Sequences, ...]
    free_eps: bool = True

    @cached_property
    def _basis(self) -> Array:
        return self.shape.basis

    def predict(self, state: BlockState, rows: Array) -> Array:
        """Answers (n, d)."""
        return self._pass(state, rows).out

    def residual(self, state: BlockState, /) -> Array:
        parts = []
        for group in self.data:
            parts.append(((self.predict(state, group.rows) - group.answers) * group.weights[:, None]).ravel())
        return np.concatenate(parts)

    def moved(self, state: BlockState, step: Array, /) -> BlockState:
        return state.moved(step)

    def linearise(self, state: BlockState, /) -> Linearisation:
        return _BlockJacobian(tuple(self._factors(state, group) for group in self.data))

    def _normed(self, rows: Array, log_eps: float) -> tuple[Array, Array]:
        """Seen coordinates of a norm's output, and the size that it divided by."""
        seen = rows @ self._basis
        size = np.sqrt((seen**2).sum(axis=-1, keepdims=True) / self.shape.width + np.exp(log_eps))
        return seen / size, size

    def _pass(self, state: BlockState, rows: Array) -> _Pass:
        first = self.shape.norm_first
        tokens = self._normed(rows, state.log_eps[0])[0] if first else rows
        asking = np.column_stack([tokens[:, -1], np.ones(len(rows))])
        projected = asking @ state.queries.transpose(0, 2, 1)  # (H, n, r)
        scores = np.einsum("hnp,nip->hni", projected @ state.keys, tokens)
        weights = softmax(scores)
        mixed = np.einsum("hni,nip->hnp", weights, tokens)
        lifted = np.concatenate([*(mixed @ state.values.transpose(0, 2, 1)), np.ones((len(rows), 1))], axis=1)
        added = lifted @ state.outputs.T
        y = rows[:, -1] + added if first else rows[:, -1] @ self._basis + added
        if first:
            middle, middle_size = self._normed(y, state.log_eps[1])
        else:
            middle_size = np.sqrt(
                (y**2).sum(axis=-1, keepdims=True) / self.shape.width + np.exp(state.log_eps[0])
            )
            middle = y / middle_size
        hidden = middle @ state.inner[:, :-1].T + state.inner[:, -1]
        network = self.shape.activation(hidden) @ state.outer[:, :-1].T + state.outer[:, -1]
        if first:
            empty = np.empty((len(rows), 0))
            return _Pass(
                y + network,
                tokens,
                asking,
                projected,
                weights,
                mixed,
                lifted,
                middle,
                middle_size,
                hidden,
                empty,
                empty,
            )
        r = ((middle @ self._basis.T) * state.gains[0]) @ self._basis + network
        size = np.sqrt((r**2).sum(axis=-1, keepdims=True) / self.shape.width + np.exp(state.log_eps[1]))
        last = r / size
        out = (last @ self._basis.T) * state.gains[1] + state.gains[2]
        return _Pass(
            out, tokens, asking, projected, weights, mixed, lifted, middle, middle_size, hidden, last, size
        )

    def _factors(self, state: BlockState, group: Sequences) -> list[_Factor]:
        there = self._pass(state, group.rows)
        weights, n, d = group.weights, len(group.rows), self.shape.width
        basis = self._basis
        slopes = self.shape.activation.first(there.hidden)
        bent = state.outer[:, :-1] * slopes[:, None]  # (n, m, J)
        inner = state.inner[:, :-1]
        k = basis.shape[1]
        shrink = np.eye(k) - there.middle[:, :, None] * there.middle[:, None] / d
        shrink = shrink / there.middle_size[:, :, None]  # (n, k, k)
        active = np.column_stack([self.shape.activation(there.hidden), np.ones(n)])
        seen = np.column_stack([there.middle, np.ones(n)])
        tail: list[_Factor] = []
        if self.shape.norm_first:
            by_network = np.broadcast_to(np.eye(d), (n, d, d)) * weights[:, None, None]
            by_hidden = bent * weights[:, None, None]
            by_y = by_network + (by_hidden @ inner) @ (shrink @ basis.T)
        else:
            last = (np.eye(k) - there.last[:, :, None] * there.last[:, None] / d) / there.last_size[
                :, :, None
            ]
            by_network = (state.gains[1][:, None] * basis) @ last * weights[:, None, None]
            by_hidden = by_network @ bent
            skip = basis.T @ (state.gains[0][:, None] * basis)
            by_y = (by_network @ skip + by_hidden @ inner) @ shrink
            one = weights[:, None]
            first_gain = (by_network @ basis.T) * (there.middle @ basis.T)[:, None]
            second_gain = np.eye(d) * (there.last @ basis.T * one)[:, None]
            bias = np.broadcast_to(np.eye(d), (n, d, d)) * one[:, :, None]
            tail = [_Factor(part, np.ones((n, 1))) for part in (first_gain, second_gain, bias)]
        heads = [self._head_factors(state, there, by_y, h) for h in range(state.heads)]
        eps = self._eps_columns(state, group, there)
        return [
            *(head[0] for head in heads),
            *(head[1] for head in heads),
            *(head[2] for head in heads),
            _Factor(by_y, there.lifted),
            _Factor(by_hidden, seen),
            _Factor(by_network, active),
            _Factor(eps, np.ones((n, 1))),
            *tail,
        ]

    def _head_factors(
        self, state: BlockState, there: _Pass, by_y: Array, h: int
    ) -> tuple[_Factor, _Factor, _Factor]:
        """Queries, keys and values of one head."""
        r = state.keys.shape[1]
        by_value = by_y @ state.outputs[:, h * r : (h + 1) * r]  # (n, o, r)
        away = there.tokens - there.mixed[h][:, None]  # (n, N, p)
        by_score = (
            (by_value @ state.values[h]) @ away.transpose(0, 2, 1) * there.weights[h][:, None]
        )  # (n, o, N)
        by_tokens = by_score @ there.tokens  # (n, o, p)
        return (
            _Factor(by_tokens @ state.keys[h].T, there.asking),
            _Factor(by_tokens, there.projected[h], swapped=True),
            _Factor(by_value, there.mixed[h]),
        )

    def _eps_columns(self, state: BlockState, group: Sequences, there: _Pass) -> Array:
        """(n, d, 2): derivatives by the logarithms of both eps, zero while these are held."""
        if not self.free_eps:
            return np.zeros((*there.out.shape, 2))
        columns = []
        for i in range(2):
            moved = state.log_eps.copy()
            moved[i] += _DIFFERENCE
            other = replace(state, log_eps=moved)
            columns.append(
                (self.predict(other, group.rows) - there.out) / _DIFFERENCE * group.weights[:, None]
            )
        return np.stack(columns, axis=2)


@dataclass(frozen=True)
class _BlockJacobian:
    """The Jacobian as factors, one list a length of sequences, all lists in the order of the parameters."""

    groups: tuple[list[_Factor], ...]

    @cached_property
    def _ends(self) -> Array:
        return np.cumsum([0, *(factor.size for factor in self.groups[0])])

    @property
    def unknowns(self) -> int:
        return int(self._ends[-1])

    def forward(self, step: Array, /) -> Array:
        ends, parts = self._ends, []
        for group in self.groups:
            total = sum(f.forward(step[ends[i] : ends[i + 1]]) for i, f in enumerate(group))
            parts.append(np.asarray(total).ravel())
        return np.concatenate(parts)

    def backward(self, residual: Array, /) -> Array:
        found, start = np.zeros(self.unknowns), 0
        for group in self.groups:
            n, o = group[0].M.shape[:2]
            part = residual[start : start + n * o].reshape(n, o)
            start += n * o
            found += np.concatenate([factor.backward(part) for factor in group])
        return found

    def normal(self) -> Array:
        """JᵀJ block by block: Σ_n (M_iᵀM_j) ⊗ (v_i v_jᵀ), without the Jacobian itself, o times cheaper."""
        ends, total = self._ends, np.zeros((self.unknowns, self.unknowns))
        for group in self.groups:
            for i, first in enumerate(group):
                rows = slice(ends[i], ends[i + 1])
                for j, second in enumerate(group[: i + 1]):
                    total[rows, ends[j] : ends[j + 1]] += _cross(first, second)
        lower = np.tril(total, -1)
        return np.asarray(total - np.triu(total, 1) + lower.T)

    def diagonal(self) -> Array:
        return np.asarray(sum(np.concatenate([f.squares() for f in group]) for group in self.groups))

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        ends = self._ends
        inverses = []
        for i in range(len(self.groups[0])):
            factors = [group[i] for group in self.groups]
            inverses.append(_kronecker_inverse(factors, float(damping[ends[i] : ends[i + 1]].mean())))

        def apply(vector: Array) -> Array:
            return np.concatenate(
                [inverse(vector[ends[i] : ends[i + 1]]) for i, inverse in enumerate(inverses)]
            )

        return apply


def _cross(first: _Factor, second: _Factor) -> Array:
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


def _kronecker_inverse(factors: list[_Factor], damping: float) -> Inverse:
    """(Σ MᵀM ⊗ v vᵀ + damping)⁻¹, with the sum of products taken as the product of means."""
    count = sum(len(factor.M) for factor in factors)
    left = sum(np.einsum("nor,nos->rs", f.M, f.M, optimize=True) for f in factors) / count
    right = sum(f.v.T @ f.v for f in factors)
    a, E = np.linalg.eigh(left)
    b, F = np.linalg.eigh(right)
    a, b = np.maximum(a, _FLOOR * a[-1]), np.maximum(b, _FLOOR * b[-1])
    scale = 1.0 / (a[:, None] * b + damping + 1e-300)
    swapped = factors[0].swapped

    def apply(vector: Array) -> Array:
        block = vector.reshape(len(b), len(a)).T if swapped else vector.reshape(len(a), len(b))
        solved = E @ (scale * (E.T @ block @ F)) @ F.T
        return np.asarray((solved.T if swapped else solved).ravel())

    return apply
