"""What the heads of all layers write together when every row of a prompt is large, or zero.

Rows n_i/s with small s reach every layer as they are, so all heads of all layers act side by side, as those
of one layer would. Zero rows in front stay zero: they have the key zero and write nothing, but take weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.deep.collapsed_layer import Scales, across
from unsoftmax.meters.language_model.hidden_state import HiddenState

__all__ = ["CollapsedAttention"]

_PROMPTS = 4096  # asked at a time


@dataclass(frozen=True, eq=False)
class CollapsedAttention:
    """P·Σ_h Σ_i weight_hi·A_h·n_i of prompts that end with a row b; P removes what is along b.

    networks: what all networks write for normed rows, side by side. scales: of the polynomial in s.
    """

    state: HiddenState
    networks: Callable[[Array], Array]
    scales: Scales

    def __call__(self, zeros: int, before: Array, last: Array) -> Array:
        """(B, d) for `zeros` zero rows, rows `before` (B, k, d) and `last` (B, d), all of mean square one."""
        B, d = last.shape
        rows = np.concatenate([np.zeros((B, zeros, d)), before, last[:, None]], axis=1)
        found = []
        for s in self.scales.nodes:
            parts = [self.state(rows[i : i + _PROMPTS] / s) for i in range(0, B, _PROMPTS)]
            found.append(across(np.concatenate(parts), last) / s)
        c0 = np.einsum("t,tbd->bd", self.scales.weights(1)[0], np.array(found))
        known = self.networks(last)
        return np.asarray(c0 - known + last * (known * last).mean(axis=1, keepdims=True))
