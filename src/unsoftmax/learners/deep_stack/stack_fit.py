"""Joint refinement of a whole stack: exact Jacobians of the last stream of single rows, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.stack_state import LayerState, StackState
from unsoftmax.models.language_model.parts import FeedForward
from unsoftmax.solvers.joint_refinement import Inverse

__all__ = ["StackFit", "StackJacobian", "least_streams", "network_columns", "streams_of"]

_NUMBERS = 4_000_000  # entries of the Jacobian that are held at a time: 32 MB


@dataclass(frozen=True, eq=False)
class _Step:
    """One sublayer at rows (B, d): what it sees, the size it divided by, its derivative (B, d, d) there, and
    what a step of one changes its eps by."""

    n: Array
    size: Array
    eps_step: float
    slope: Array

    def normed(self, matrices: Array) -> Array:
        """Matrices (B, k, d) that read n, as they read the stream before the norm."""
        along = np.einsum("bki,bi->bk", matrices, self.n) / self.n.shape[1]
        return np.asarray((matrices - along[..., None] * self.n[:, None]) / self.size[..., None])

    def by_eps(self) -> Array:
        """(B, d): how n changes in a step of eps."""
        return np.asarray(-self.n * (self.eps_step / (2.0 * self.size**2)))


def _norm(x: Array, eps: float) -> tuple[Array, Array]:
    size = np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)
    return x / size, size


class _Pass:
    """Rows through the whole stack, with what derivatives need."""

    def __init__(self, state: StackState, rows: Array) -> None:
        self.state = state
        self.paths: list[_Step | None] = []
        self.networks: list[_Step] = []
        eps = iter(zip(state.eps.tolist(), state.eps_steps.tolist(), strict=True))
        x = rows
        for layer in state.layers:
            if layer.path is None:
                self.paths.append(None)
            else:
                value, step = next(eps)
                n, size = _norm(x, value)
                self.paths.append(
                    _Step(n, size, step, np.broadcast_to(layer.path, (len(x), *layer.path.shape)))
                )
                x = x + n @ layer.path.T
            value, step = next(eps)
            n, size = _norm(x, value)
            self.networks.append(_Step(n, size, step, _network_slope(layer, n)))
            x = x + layer.network(n)
        self.last: _Step | None = None
        self.seen = x
        if state.normed:
            value, step = next(eps)
            n, size = _norm(x, value)
            self.last, self.seen = _Step(n, size, step, np.zeros((0,))), n

    def jacobian(self) -> Array:
        """(B·d, unknowns)."""
        state, B = self.state, len(self.seen)
        d = state.width
        eye = np.broadcast_to(np.eye(d), (B, d, d))
        after = eye if self.last is None else self.last.normed(eye)
        columns: list[list[Array]] = []
        by_eps = [] if self.last is None else [self.last.by_eps()]
        for layer, path, network in zip(
            reversed(state.layers), reversed(self.paths), reversed(self.networks), strict=True
        ):
            read = after @ network.slope
            by_eps.append(np.einsum("boi,bi->bo", read, network.by_eps()))
            own = network_columns(layer, network.n, after)
            after = after + network.normed(read)
            if path is not None:
                own.insert(0, np.einsum("boc,bi->boci", after, path.n).reshape(B, d, -1))
                read = after @ path.slope
                by_eps.append(np.einsum("boi,bi->bo", read, path.by_eps()))
                after = after + path.normed(read)
            columns.append(own)
        joined = [each for own in reversed(columns) for each in own] + [np.stack(by_eps[::-1], axis=2)]
        return np.concatenate(joined, axis=2).reshape(B * d, -1)


def _network_slope(layer: LayerState, n: Array) -> Array:
    part = layer.network
    if isinstance(part, FeedForward):
        slopes = part.activation.first(n @ part.inner.T + part.inner_bias)
        return np.asarray((part.outer * slopes[:, None]) @ part.inner)
    active, offered = n @ part.gate.T, n @ part.up.T
    by_gate, by_up = part.activation.first(active) * offered, part.activation(active)
    return np.asarray((part.down * by_gate[:, None]) @ part.gate + (part.down * by_up[:, None]) @ part.up)


def network_columns(layer: LayerState, n: Array, after: Array) -> list[Array]:
    """One array (B, d, size) for every array of the network that may move."""
    part, (B, d) = layer.network, n.shape
    if isinstance(part, FeedForward):
        z = n @ part.inner.T + part.inner_bias
        reach = (after @ part.outer) * part.activation.first(z)[:, None]  # (B, out, m)
        inner = np.einsum("bom,bi->bomi", reach, n).reshape(B, d, -1)
        outer = np.einsum("boc,bm->bocm", after, part.activation(z)).reshape(B, d, -1)
        columns = {"inner": inner, "inner_bias": reach, "outer": outer, "outer_bias": after}
        return [columns[name] for name in layer.names]
    active, offered = n @ part.gate.T, n @ part.up.T
    value, slope = part.activation(active), part.activation.first(active)
    reach = after @ part.down
    gate = np.einsum("bom,bi->bomi", reach * (slope * offered)[:, None], n).reshape(B, d, -1)
    up = np.einsum("bom,bi->bomi", reach * value[:, None], n).reshape(B, d, -1)
    down = np.einsum("boc,bm->bocm", after, value * offered).reshape(B, d, -1)
    return [gate, up, down]


def least_streams(state: StackState, rows: Array) -> Array:
    """The smallest mean square of what every norm sees of the rows."""
    seen = _Pass(state, rows)
    steps = [step for pair in zip(seen.paths, seen.networks, strict=True) for step in pair] + [seen.last]
    squares = np.array([float((step.size**2).min()) for step in steps if step is not None])
    return np.asarray(np.maximum(squares - state.eps, 0.0))


def streams_of(state: StackState, rows: Array) -> Array:
    """What the stack of `state` answers to rows (B, d)."""
    return _Pass(state, rows).seen


@dataclass(frozen=True, eq=False)
class StackFit:
    """Least squares over rows (B, d) and their measured last streams (B, d), divided by `sizes` (B, 1).
    free_eps: whether eps of norms may move; rows that are not small do not show it."""

    rows: Array
    seen: Array
    sizes: Array
    free_eps: bool = True

    def residual(self, state: StackState, /) -> Array:
        return np.asarray(((streams_of(state, self.rows) - self.seen) / self.sizes).ravel())

    def moved(self, state: StackState, step: Array, /) -> StackState:
        return state.moved(step)

    def linearise(self, state: StackState, /) -> StackJacobian:
        return StackJacobian(self, state)


@dataclass(frozen=True, eq=False)
class StackJacobian:
    """The Jacobian, made again in pieces whenever it is used: a whole one of 5,000 unknowns takes 400 MB."""

    fit: StackFit
    state: StackState

    @property
    def unknowns(self) -> int:
        return self.state.unknowns

    def _pieces(self) -> Iterator[Array]:
        rows, sizes, d = self.fit.rows, self.fit.sizes, self.state.width
        each = max(1, _NUMBERS // (d * self.unknowns))
        for i in range(0, len(rows), each):
            weight = np.repeat(1.0 / sizes[i : i + each, 0], d)[:, None]
            columns = weight * _Pass(self.state, rows[i : i + each]).jacobian()
            if not self.fit.free_eps:
                columns[:, -len(self.state.eps) :] = 0.0
            yield columns

    def forward(self, step: Array, /) -> Array:
        return np.concatenate([piece @ step for piece in self._pieces()])

    def backward(self, residual: Array, /) -> Array:
        total, at = np.zeros(self.unknowns), 0
        for piece in self._pieces():
            total += piece.T @ residual[at : at + len(piece)]
            at += len(piece)
        return total

    def normal(self) -> Array:
        total = np.zeros((self.unknowns, self.unknowns))
        for piece in self._pieces():
            total += piece.T @ piece
        return total

    def diagonal(self) -> Array:
        return np.asarray(sum((piece**2).sum(axis=0) for piece in self._pieces()))

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return None
