"""Joint refinement of a whole stack: exact Jacobians of the last stream of single rows, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.stack_state import LayerState, StackState
from unsoftmax.learners.deep_stack.sublayer_slopes import before_norm, network_slope, normed
from unsoftmax.models.language_model.parts import FeedForward
from unsoftmax.solvers.least_squares.factored_jacobian import FactoredJacobian, Factors

__all__ = ["StackFit", "least_streams", "network_blocks", "streams_of"]

_NUMBERS = 16_000_000  # entries of the left factors that are held at a time: 128 MB


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
        return before_norm(matrices, self.n, self.size)

    def by_eps(self) -> Array:
        """(B, d): how n changes in a step of eps."""
        return np.asarray(-self.n * (self.eps_step / (2.0 * self.size**2)))


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
                n, size = normed(x, value)
                self.paths.append(
                    _Step(n, size, step, np.broadcast_to(layer.path, (len(x), *layer.path.shape)))
                )
                x = x + n @ layer.path.T
            value, step = next(eps)
            n, size = normed(x, value)
            self.networks.append(_Step(n, size, step, network_slope(layer.network, n)))
            x = x + layer.network(n)
        self.last: _Step | None = None
        self.seen = x
        if state.normed:
            value, step = next(eps)
            n, size = normed(x, value)
            self.last, self.seen = _Step(n, size, step, np.zeros((0,))), n

    def blocks(self) -> list[Factors]:
        """Columns of all arrays in the order of a step."""
        state, B = self.state, len(self.seen)
        eye = np.broadcast_to(np.eye(state.width), (B, state.width, state.width))
        after = eye if self.last is None else self.last.normed(eye)
        blocks: list[list[Factors]] = []
        by_eps = [] if self.last is None else [self.last.by_eps()]
        for layer, path, network in zip(
            reversed(state.layers), reversed(self.paths), reversed(self.networks), strict=True
        ):
            read = after @ network.slope
            by_eps.append(np.einsum("boi,bi->bo", read, network.by_eps()))
            own = network_blocks(layer, network.n, after)
            after = after + network.normed(read)
            if path is not None:
                own.insert(0, Factors(after, path.n))
                read = after @ path.slope
                by_eps.append(np.einsum("boi,bi->bo", read, path.by_eps()))
                after = after + path.normed(read)
            blocks.append(own)
        eps = Factors(np.stack(by_eps[::-1], axis=2), np.ones((B, 1)))
        return [each for own in reversed(blocks) for each in own] + [eps]


def network_blocks(layer: LayerState, n: Array, after: Array) -> list[Factors]:
    """Columns of every array of the network that may move. after: (B, out, d), what its output does later."""
    part, one = layer.network, np.ones((len(n), 1))
    if isinstance(part, FeedForward):
        z = n @ part.inner.T + part.inner_bias
        reach = (after @ part.outer) * part.activation.first(z)[:, None]  # (B, out, m)
        blocks = {
            "inner": Factors(reach, n),
            "inner_bias": Factors(reach, one),
            "outer": Factors(after, part.activation(z)),
            "outer_bias": Factors(after, one),
        }
        return [blocks[name] for name in layer.names]
    active, offered = n @ part.gate.T, n @ part.up.T
    value, slope = part.activation(active), part.activation.first(active)
    reach = after @ part.down
    return [
        Factors(reach * (slope * offered)[:, None], n),
        Factors(reach * value[:, None], n),
        Factors(after, value * offered),
    ]


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

    def part(self, which: slice | NDArray[np.bool_]) -> StackFit:
        """The same on some of the rows."""
        return replace(self, rows=self.rows[which], seen=self.seen[which], sizes=self.sizes[which])

    def residual(self, state: StackState, /) -> Array:
        return np.asarray(((streams_of(state, self.rows) - self.seen) / self.sizes).ravel())

    def moved(self, state: StackState, step: Array, /) -> StackState:
        return state.moved(step)

    def linearise(self, state: StackState, /) -> FactoredJacobian:
        each = max(
            1, _NUMBERS // (state.width * sum(len(layer.arrays) for layer in state.layers)) // state.width
        )

        def pieces() -> Iterator[list[Factors]]:
            for i in range(0, len(self.rows), each):
                blocks = _Pass(state, self.rows[i : i + each]).blocks()
                if not self.free_eps:
                    blocks[-1] = Factors(0.0 * blocks[-1].left, blocks[-1].right)
                weight = 1.0 / self.sizes[i : i + each, :, None]
                yield [Factors(weight * block.left, block.right) for block in blocks]

        return FactoredJacobian(state.unknowns, pieces)
