"""Values of the network of a one-layer decoder at any normed row, from two prompts of one row each.

The row x that makes the residual stream before the network ρ·n solves x + A·norm(x) = ρ·n. The stream after
it is ρ·n + M(n), of which only the direction is seen. Two sizes ρ give two directions in one plane with n,
and with them both lengths and M(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.hidden_state import HiddenState

__all__ = ["NetworkValues", "first_length", "rows_before_network"]

# sizes ρ of the stream over the norm of A: far enough for a fixed point to be found, near enough for M to
# show beside ρ·n
_SIZES = (1.5, 6.0)
_ITERATIONS = 400  # of the fixed point, at most


@dataclass(frozen=True, eq=False)
class NetworkValues:
    """M(n) for rows n with mean square one, two queries each. eps: of the first norm.

    The second norm shortens n by its own eps over 2ρ², at both sizes by less than 1e-6.
    """

    state: HiddenState
    value_path: Array
    eps: float

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """The two ρ."""
        norm = max(float(np.linalg.norm(self.value_path, 2)), 1.0)
        return _SIZES[0] * norm, _SIZES[1] * norm

    def __call__(self, n: Array) -> Array:
        near, far = self.sizes
        rows = rows_before_network(self.value_path, self.eps, np.concatenate([near * n, far * n]))
        first, second = np.split(self.state(rows[:, None, :]), 2)
        difference = (near - far) * n  # length1·first - length2·second
        length = first_length(first, second, difference)
        return np.asarray(length[:, None] * first - near * n)


def rows_before_network(value_path: Array, eps: float, streams: Array) -> Array:
    """Rows x with x + A·norm(x) = stream, for streams larger than the norm of A."""
    rows = streams
    for _ in range(_ITERATIONS):
        size = np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + eps)
        moved = streams - (rows / size) @ value_path.T
        change = np.abs(moved - rows).max()
        rows = moved
        if change <= 1e-15 * np.abs(streams).max():
            break
    return rows


def first_length(first: Array, second: Array, difference: Array) -> Array:
    """λ1 of the least squares λ1·first - λ2·second = difference, row by row."""
    a, b, c = (first * first).sum(axis=1), -(first * second).sum(axis=1), (second * second).sum(axis=1)
    right = (first * difference).sum(axis=1), -(second * difference).sum(axis=1)
    return np.asarray((c * right[0] - b * right[1]) / (a * c - b * b))
