"""What other rows add to the residual stream y of an asking row: known whole, or up to the length of y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["DirectionResponses", "ExactResponses", "Responses"]

_SETTLED = 1e-14
_ROUNDS = 200
_OVERSHOOT = 0.5  # of every change of a length beyond the first; measured: a third of the rounds


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
        """Lengths and the common space in turn, each the best for the other."""
        alone = self.alone(asking)
        lengths, last = np.ones(len(found)), np.zeros(len(found))
        for _ in range(_ROUNDS):
            added = lengths[:, None] * found - alone
            space = np.linalg.svd(added, full_matrices=False)[2][:heads]
            along, rest = found - found @ space.T @ space, alone - alone @ space.T @ space
            best = (along * rest).sum(axis=1) / (along**2).sum(axis=1)
            change = best - lengths
            if float(np.abs(change).max()) < _SETTLED:
                break
            lengths = best + _OVERSHOOT * (best - last if last.any() else 0.0)
            last = best
        return np.asarray(best[:, None] * found - alone)

    def weights(self, found: Array, asking: Array, columns: Array) -> Array:
        """Solved for together with the length."""
        design = np.column_stack([found, -columns])
        return np.asarray(np.linalg.lstsq(design, self.alone(asking), rcond=None)[0][1:])
