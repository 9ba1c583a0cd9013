"""What other rows add to the residual stream y of an asking row: known whole, or up to the length of y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["DirectionResponses", "ExactResponses", "Responses"]

_SETTLED = 1e-15  # relative: float64 rounding; nothing is left to gain
_ROUNDS = 30  # a cap: Gauss-Newton
_SLOW = 0.9  # of what was beyond a round before: with the right number of heads it falls to rounding in six
_DAMPING = 1e-13  # of the mean curvature: keeps the solve finite where two lengths move the answers alike


class Responses(Protocol):
    """Keys (B, n, p) and asking rows (B, p) are answered with (B, m); rows of NaN where an answer tells
    nothing."""

    def ask(self, keys: Array, asking: Array) -> Array: ...

    def settle(self, found: Array, asking: Array, heads: int) -> Array:
        """What the keys add, where one difference of rows was asked with many asking rows: it lies in a space
        of as many dimensions as there are heads."""

    def weights(self, found: Array, asking: Array, columns: Array) -> Array:
        """Weights of known columns (m, c) in one response."""


@dataclass(frozen=True)
class ExactResponses:
    """Answers that give y whole, so that what keys add is known at once."""

    ask: Callable[[Array, Array], Array]

    def settle(self, found: Array, asking: Array, heads: int) -> Array:
        return found

    def weights(self, found: Array, asking: Array, columns: Array) -> Array:
        return np.asarray(np.linalg.lstsq(columns, found, rcond=None)[0])


@dataclass(frozen=True)
class DirectionResponses:
    """Answers that give y up to its length: `ask` returns a first guess of y. alone: y of single rows."""

    ask: Callable[[Array, Array], Array]
    alone: Callable[[Array], Array]

    def settle(self, found: Array, asking: Array, heads: int) -> Array:
        """Gauss-Newton on the lengths, for what is beyond so many dimensions."""
        alone = self.alone(asking)
        lengths = np.ones(len(found))
        last = np.inf
        for _ in range(_ROUNDS):
            added = lengths[:, None] * found - alone
            left, sizes, right = np.linalg.svd(added, full_matrices=False)
            beyond = float(np.linalg.norm(sizes[heads:])) / float(sizes[0])
            if beyond < _SETTLED or beyond > _SLOW * last:
                break
            last = beyond
            beside = np.eye(len(found)) - left[:, :heads] @ left[:, :heads].T  # of sequences
            across = found - found @ right[:heads].T @ right[:heads]  # of outputs
            normal = beside * (across @ across.T)
            slope = ((beside @ added) * across).sum(axis=1)
            damping = _DAMPING * float(np.trace(normal)) / len(normal)
            lengths = lengths - np.linalg.solve(normal + damping * np.eye(len(normal)), slope)
        return np.asarray(added)

    def weights(self, found: Array, asking: Array, columns: Array) -> Array:
        """Solved for together with the length."""
        design = np.column_stack([found, -columns])
        return np.asarray(np.linalg.lstsq(design, self.alone(asking), rcond=None)[0][1:])
