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
# beyond, over the largest: where single rows are known to 1e-11, the right number of heads and lengths leave
# 1e-13 to 1e-11. Rows known to 1e-5 leave 1e-4, and 1e-7 of numbers of heads that are too large
_ARRIVED = 1e-9
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
        """From lengths as they were guessed; where that does not arrive, as with heads of very different
        sizes, from those of planes."""
        alone = self.alone(asking)
        added, beyond = _settled(found, alone, np.ones(len(found)), heads)
        if beyond > _ARRIVED:
            lengths = _lengths_by_planes(found, alone, heads)
            if lengths is not None:
                again, after = _settled(found, alone, lengths, heads)
                added = again if after < _ARRIVED else added
        return added

    def weights(self, found: Array, asking: Array, columns: Array) -> Array:
        """Solved for together with the length."""
        design = np.column_stack([found, -columns])
        return np.asarray(np.linalg.lstsq(design, self.alone(asking), rcond=None)[0][1:])


def _settled(found: Array, alone: Array, lengths: Array, heads: int) -> tuple[Array, float]:
    """What keys add, and what of it is beyond so many dimensions: Gauss-Newton on the lengths."""
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
    return np.asarray(added), beyond


def _lengths_by_planes(found: Array, alone: Array, heads: int) -> Array | None:
    """Lengths λ with λ·found - alone in one space of so many dimensions, by linear algebra alone; None where
    sequences are too few.

    For w1, w2 orthogonal to that space (found·w1)(alone·w2) = (found·w2)(alone·w1), whatever λ is: all planes
    found ∧ alone are orthogonal to all w1 ∧ w2.
    """
    n, k = found.shape
    first, second = np.triu_indices(k, 1)
    free = (k - heads) * (k - heads - 1) // 2
    if free < 1 or n < len(first) - free:
        return None
    here, there = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (found, alone))
    planes = here[:, first] * there[:, second] - here[:, second] * there[:, first]
    forms = np.zeros((free, k, k))
    forms[:, first, second] = np.linalg.svd(planes)[2][-free:]
    forms -= forms.transpose(0, 2, 1)
    beside = np.linalg.svd(forms.transpose(1, 0, 2).reshape(k, -1), full_matrices=False)[0][:, : k - heads]
    seen, wanted = found @ beside, alone @ beside
    return np.asarray((seen * wanted).sum(axis=1) / (seen**2).sum(axis=1))
