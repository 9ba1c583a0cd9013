"""What attention adds to the last row of a prompt, for a one-layer decoder whose network is known: two
queries each.

The last row is T·w. Its normed form is w whatever T is, so attention adds the same c at two T. The streams
T·w + c + M are seen up to their lengths; two of them in one plane fix both, and c follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.network_values import first_length
from unsoftmax.outcomes import Unresolved

__all__ = ["AttentionOutputs"]

_ITERATIONS = 100  # of the fixed point, at most


@dataclass(frozen=True, eq=False)
class AttentionOutputs:
    """network: M of normed rows. first_eps, second_eps: of the two norms of the layer. near: the smaller T;
    the larger is four times it."""

    state: HiddenState
    network: Callable[[Array], Array]
    first_eps: float
    second_eps: float
    near: float

    def __call__(self, before: Array, last: Array) -> Array:
        """c (B, d) for normed rows `before` (B, N - 1, d), of mean square below one, and `last` (B, d), of
        mean square one."""
        sizes = self.near, 4.0 * self.near
        rows = self.rows_of(before)
        batches = [np.concatenate([rows, (size * last)[:, None]], axis=1) for size in sizes]
        first, second = np.split(self.state(np.concatenate(batches)), 2)
        c = np.zeros_like(last)
        for _ in range(_ITERATIONS):
            values = [self.network(self._normed(size * last + c)) for size in sizes]
            difference = (sizes[0] - sizes[1]) * last + values[0] - values[1]
            length = first_length(first, second, difference)
            moved = length[:, None] * first - sizes[0] * last - values[0]
            change = np.abs(moved - c).max()
            c = moved
            if change <= 1e-15 * self.near:
                break
        if not np.isfinite(c).all():
            raise Unresolved(
                "large last rows of two sizes leave no streams that one output of attention explains; is the "
                "end of long prompts cut off?"
            )
        return c

    def rows_of(self, normed: Array) -> Array:
        """Rows whose norm, with the first eps, is as given."""
        square = (normed * normed).mean(axis=-1, keepdims=True)
        return np.asarray(normed * np.sqrt(self.first_eps / (1.0 - square)))

    def _normed(self, stream: Array) -> Array:
        return np.asarray(stream / np.sqrt((stream * stream).mean(axis=-1, keepdims=True) + self.second_eps))
