"""Value path, gated network and eps together, fitted to the states of prompts of one row.

    z = x/√(ms x + e1),  y = x + A·z,  n = y/√(ms y + e2),  h = y + down·(φ(gate·n)·(up·n)),  state =
    h/√(ms h + e3)

The Jacobian is used by its products. The preconditioner has one block for every neuron, which couples its
gate, up and down, and a Kronecker product for A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model import GatedNetwork
from unsoftmax.models.parts import SILU, Activation
from unsoftmax.solvers.least_squares.joint_refinement import Products

__all__ = ["OneRowFit", "OneRowState", "states_of_rows"]

# of the trace of a block, added to it: the factor between up and down of a neuron changes nothing
_FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class OneRowState:
    """value_path (d, d), gate, up (m, d), down (d, m), log_eps (3,) of the three norms. activation: φ."""

    value_path: Array
    gate: Array
    up: Array
    down: Array
    log_eps: Array
    activation: Activation = SILU

    @property
    def network(self) -> GatedNetwork:
        """The network alone."""
        return GatedNetwork(self.gate, self.up, self.down, self.activation)

    @property
    def unknowns(self) -> int:
        """Numbers in all five."""
        return self.value_path.size + 3 * self.gate.size + 3

    def moved(self, step: Array) -> OneRowState:
        """The state plus a step; up and down of every neuron get equal sizes."""
        a, g, u, w, e = self.split(step)
        gate, up, down = self.gate + g, self.up + u, self.down + w
        factor = np.sqrt(np.linalg.norm(down, axis=0) / np.linalg.norm(up, axis=1))
        path, log_eps = self.value_path + a, self.log_eps + e
        return OneRowState(path, gate, factor[:, None] * up, down / factor, log_eps, self.activation)

    def split(self, flat: Array) -> tuple[Array, Array, Array, Array, Array]:
        """A step as five arrays."""
        d, m = len(self.value_path), len(self.gate)
        cuts = np.cumsum([d * d, m * d, m * d, m * d])
        a, g, u, w, e = np.split(flat, cuts)
        return a.reshape(d, d), g.reshape(m, d), u.reshape(m, d), w.reshape(d, m), e


def states_of_rows(state: OneRowState, rows: Array) -> Array:
    """What the model of `state` says of prompts of one row, (B, d)."""
    return np.asarray(_Pass(state, rows).seen)


class _Pass:
    """One forward pass with everything that derivatives need."""

    def __init__(self, state: OneRowState, rows: Array) -> None:
        self.state = state
        self.eps = np.exp(state.log_eps)
        self.size1 = np.sqrt((rows * rows).mean(axis=1, keepdims=True) + self.eps[0])
        self.z = rows / self.size1
        self.y = rows + self.z @ state.value_path.T
        self.size2 = np.sqrt((self.y * self.y).mean(axis=1, keepdims=True) + self.eps[1])
        self.n = self.y / self.size2
        self.active, self.offered = self.n @ state.gate.T, self.n @ state.up.T
        self.value, self.slope = state.activation(self.active), state.activation.first(self.active)
        self.hidden = self.value * self.offered
        h = self.y + self.hidden @ state.down.T
        self.size3 = np.sqrt((h * h).mean(axis=1, keepdims=True) + self.eps[2])
        self.seen = h / self.size3

    def forward(self, step: Array) -> Array:
        s = self.state
        a, g, u, w, e = s.split(step)
        dz = -self.z * (self.eps[0] / (2.0 * self.size1**2)) * e[0]
        dy = self.z @ a.T + dz @ s.value_path.T
        dn = _normed(self.n, dy, self.size2) - self.n * (self.eps[1] / (2.0 * self.size2**2)) * e[1]
        d_active, d_offered = dn @ s.gate.T + self.n @ g.T, dn @ s.up.T + self.n @ u.T
        d_hidden = self.slope * self.offered * d_active + self.value * d_offered
        dh = dy + d_hidden @ s.down.T + self.hidden @ w.T
        turned = self.seen * (self.eps[2] / (2.0 * self.size3**2)) * e[2]
        return np.asarray(_normed(self.seen, dh, self.size3) - turned)

    def backward(self, weights: Array) -> Array:
        s = self.state
        e = np.empty(3)
        e[2] = -float((weights * self.seen * (self.eps[2] / (2.0 * self.size3**2))).sum())
        dh = _normed(self.seen, weights, self.size3)
        w = dh.T @ self.hidden
        d_hidden = dh @ s.down
        d_active, d_offered = d_hidden * self.slope * self.offered, d_hidden * self.value
        g, u = d_active.T @ self.n, d_offered.T @ self.n
        dn = d_active @ s.gate + d_offered @ s.up
        e[1] = -float((dn * self.n * (self.eps[1] / (2.0 * self.size2**2))).sum())
        dy = dh + _normed(self.n, dn, self.size2)
        a = dy.T @ self.z
        e[0] = -float(((dy @ s.value_path) * self.z * (self.eps[0] / (2.0 * self.size1**2))).sum())
        return np.concatenate([a.ravel(), g.ravel(), u.ravel(), w.ravel(), e])

    @cached_property
    def neuron_blocks(self) -> Array:
        """(m, 3d, 3d): the part of JᵀJ that belongs to one neuron's gate, up and down."""
        s = self.state
        m, d = s.gate.shape
        weight = 1.0 / self.size3[:, 0] ** 2
        bend = (2.0 / d - (self.seen**2).sum(axis=1) / d**2) * weight  # J3ᵀJ3 = weight·1 - bend·seen·seenᵀ
        along = self.seen @ s.down  # (B, m)
        pull = weight[:, None] * (s.down**2).sum(axis=0) - bend[:, None] * along**2
        by_gate, by_up = self.slope * self.offered, self.value
        blocks = np.empty((m, 3 * d, 3 * d))
        for k in range(m):
            g, u, t = by_gate[:, k], by_up[:, k], self.hidden[:, k]
            reach = weight[:, None] * s.down[:, k] - (bend * along[:, k])[:, None] * self.seen
            n = self.n
            gg, gu, uu = (n.T @ ((pull[:, k] * f)[:, None] * n) for f in (g * g, g * u, u * u))
            gd, ud = n.T @ ((g * t)[:, None] * reach), n.T @ ((u * t)[:, None] * reach)
            dd = np.eye(d) * float((weight * t * t).sum()) - self.seen.T @ (
                (bend * t * t)[:, None] * self.seen
            )
            blocks[k] = np.block([[gg, gu, gd], [gu.T, uu, ud], [gd.T, ud.T, dd]])
        return blocks

    @cached_property
    def path_factors(self) -> tuple[Array, Array]:
        """Σ |z|²·JyᵀJy over rows and the mean of zzᵀ/|z|²: their Kronecker product stands for the part of JᵀJ
        that belongs to A. Rows far below √eps have a Jy a thousand times as large and a z as small."""
        s, d = self.state, len(self.state.value_path)
        eye = np.eye(d)
        inner = np.einsum("bk,ki->bki", self.slope * self.offered, s.gate) + np.einsum(
            "bk,ki->bki", self.value, s.up
        )
        network = np.einsum("ok,bki->boi", s.down, inner, optimize=True)
        before = (eye - self.n[:, :, None] * self.n[:, None, :] / d) / self.size2[..., None]
        after = (eye - self.seen[:, :, None] * self.seen[:, None, :] / d) / self.size3[..., None]
        jacobian = after @ (eye + network @ before)
        squares = (self.z * self.z).sum(axis=1)
        directions = self.z / np.sqrt(squares)[:, None]
        left = np.einsum("b,boi,boj->ij", squares, jacobian, jacobian, optimize=True)
        return left, directions.T @ directions / len(directions)


def _normed(unit: Array, direction: Array, size: Array) -> Array:
    """The derivative of x/√(ms x + eps); it is symmetric, so it serves both ways."""
    return np.asarray((direction - unit * (unit * direction).mean(axis=1, keepdims=True)) / size)


@dataclass(frozen=True, eq=False)
class OneRowFit:
    """Least squares over rows (B, d) and their measured states (B, d)."""

    rows: Array
    seen: Array

    @classmethod
    def joined(cls, fits: Sequence[Self]) -> Self:
        """The answers of several fits in one."""
        return cls(np.concatenate([fit.rows for fit in fits]), np.concatenate([fit.seen for fit in fits]))

    def thinned(self, every: int) -> Self:
        """Every so many of the answers, for steps far from the end."""
        return type(self)(self.rows[::every], self.seen[::every])

    def residual(self, state: OneRowState, /) -> Array:
        return (states_of_rows(state, self.rows) - self.seen).ravel()

    def moved(self, state: OneRowState, step: Array, /) -> OneRowState:
        return state.moved(step)

    def linearise(self, state: OneRowState, /) -> Products:
        at, shape = _Pass(state, self.rows), self.seen.shape
        blocks = at.neuron_blocks
        left, right = at.path_factors
        m, d = state.gate.shape
        neurons = np.einsum("kii->ki", blocks).reshape(m, 3, d)
        eps = np.array([float((at.forward(unit) ** 2).sum()) for unit in _last_units(state.unknowns)])
        squares = np.concatenate(
            [
                np.outer(np.diag(left), np.diag(right)).ravel(),
                neurons[:, 0].ravel(),
                neurons[:, 1].ravel(),
                neurons[:, 2].T.ravel(),
                eps,
            ]
        )
        return Products(
            state.unknowns,
            lambda step: at.forward(step).ravel(),
            lambda weights: at.backward(weights.reshape(shape)),
            squares,
            lambda damping: _Inverse(state, blocks, (left, right), squares, damping),
        )


def _last_units(unknowns: int) -> Array:
    return np.eye(3, unknowns, unknowns - 3)


class _Inverse:
    """The inverse of the blocks of JᵀJ plus damping."""

    def __init__(
        self, state: OneRowState, blocks: Array, path: tuple[Array, Array], squares: Array, damping: Array
    ) -> None:
        self.state, self.rest = state, squares[-3:] + damping[-3:]
        a, g, u, w, _ = state.split(damping)
        d = state.gate.shape[1]
        added = np.concatenate([g, u, w.T], axis=1)  # (m, 3d)
        floor = _FLOOR * np.einsum("kii->k", blocks)[:, None] + added
        self.neurons = np.linalg.inv(blocks + floor[:, :, None] * np.eye(3 * d))
        values = [np.linalg.eigh(factor) for factor in path]
        self.vectors = values[0][1], values[1][1]
        self.values = np.outer(values[0][0], values[1][0]) + float(a.mean())
        self.values = np.maximum(self.values, _FLOOR * self.values.max())

    def __call__(self, vector: Array) -> Array:
        a, g, u, w, e = self.state.split(vector)
        left, right = self.vectors
        path = left @ ((left.T @ a @ right) / self.values) @ right.T
        joined = np.concatenate([g, u, w.T], axis=1)
        solved = (self.neurons @ joined[:, :, None])[:, :, 0]
        d = g.shape[1]
        parts = path, solved[:, :d], solved[:, d : 2 * d], solved[:, 2 * d :].T, e / self.rest
        return np.concatenate([part.ravel() for part in parts])
