"""An approximate inverse of JᵀJ for heads with scalar answers.

A head's block has 2 r d unknowns, and is not held: with four heads of width 64 that took longer than all
else, and in wide layers it fills gigabytes. Its parts for K and Q are nearly Kronecker products of a side of
ranks and a side of rows, and are held as these. Readouts of all heads are held together: the asking row shows
their sum alone, so that without what they share conjugate gradients take four times as many steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_normal import HeadAt
from unsoftmax.solvers.least_squares.joint_refinement import Inverse

__all__ = ["HeadSides", "SharedReadouts", "inverse_of_heads"]

_SMALLEST_SHARED = 1e-6  # relative ridge of all readouts, whose normal matrix is only nearly right
_RIDGE = 1e-4  # relative: what the Kronecker form leaves out makes smaller eigenvalues meaningless


@dataclass(frozen=True)
class HeadSides:
    """Sums over answers, weighted by the squared slopes, whose sum is `mass`: queries, keys (r, r) of Q [b;
    1] and K a; first (d, d) of a and asking (d+1, d+1) of [b; 1].
    """

    queries: Array
    first: Array
    keys: Array
    asking: Array
    mass: float

    @classmethod
    def empty(cls, heads: HeadFactors) -> Self:
        r, d = heads.K.shape[1:]
        queries, first, keys, asking = (np.zeros((n, n)) for n in (r, d, r, d + 1))
        return cls(queries, first, keys, asking, 0.0)

    def with_more(self, A: Array, asking: Array, weights: Array, at: HeadAt, grid: bool) -> Self:
        """With the sums over one more block of answers. asking: mean of [b; 1][b; 1]ᵀ over the block's asking
        rows, which stands for the mean weighted by squared slopes: it is the same for all heads.
        """
        squares = (weights * at.slope) ** 2
        of_first, of_last = squares.sum(axis=1), squares.sum(axis=0 if grid else 1)
        return type(self)(
            self.queries + _moment(at.queries, of_last),
            self.first + _moment(A, of_first),
            self.keys + _moment(at.keys, of_first),
            self.asking + float(squares.sum()) * asking,
            self.mass + float(squares.sum()),
        )

    def diagonal(self) -> tuple[Array, Array]:
        """The diagonal of JᵀJ for K (r, d) and Q (r, d+1), nearly."""
        mass = max(self.mass, 1e-300)
        return (
            np.outer(np.diag(self.queries), np.diag(self.first)) / mass,
            np.outer(np.diag(self.keys), np.diag(self.asking)) / mass,
        )


@dataclass(frozen=True)
class _Shares:
    """Sums over a group of answers, weighted by their squared weights, whose sum is `mass`: first, mixed and
    asking (d, d) of a aᵀ, a bᵀ and b bᵀ; pairs (H, H) and shares (H,) of the heads' shares.
    """

    first: Array
    mixed: Array
    asking: Array
    pairs: Array
    shares: Array
    mass: float

    @property
    def normal(self) -> Array:
        """Σ (σ_h a + b)(σ_k a + b)ᵀ for all heads h and k, (H, H, d, d), as if shares did not depend on the
        rows.
        """
        pairs, shares = self.pairs / self.mass, (self.shares / self.mass)[:, None, None]
        found = pairs[:, :, None, None] * self.first + self.asking
        found += (shares * self.mixed)[:, None]
        found += (shares * self.mixed.T)[None]
        return np.asarray(found)


class SharedReadouts:
    """JᵀJ of the readouts of all heads, (H·d, H·d), nearly. Answers of one group have similar shares."""

    def __init__(self) -> None:
        self._groups: dict[str, _Shares] = {}

    def add(self, group: str, rows: tuple[Array, Array], weights: Array, shares: Array, grid: bool) -> None:
        """rows: A and B of one more block. shares: (H, ·, ·), in the shape of the weights."""
        A, B = rows
        squares = weights**2
        of_first, of_last = squares.sum(axis=1), squares.sum(axis=0 if grid else 1)
        flat = shares.reshape(len(shares), -1)
        weighted = flat * squares.ravel()
        more = (
            _moment(A, of_first),
            np.asarray(A.T @ squares @ B if grid else (A.T * squares[:, 0]) @ B),
            _moment(B, of_last),
            np.asarray(weighted @ flat.T, dtype=np.float64),
            np.asarray(weighted.sum(axis=1), dtype=np.float64),
        )
        old, mass = self._groups.get(group), float(squares.sum())
        if old is not None:
            before = (old.first, old.mixed, old.asking, old.pairs, old.shares)
            more = tuple(a + b for a, b in zip(before, more, strict=True))  # type: ignore[assignment]
            mass += old.mass
        self._groups[group] = _Shares(*more, mass)

    @cached_property
    def normal(self) -> Array:
        """The normal matrix of all that was added until now."""
        total = sum(group.normal for group in self._groups.values())
        H, _, d, _ = np.shape(total)
        return np.asarray(np.asarray(total, dtype=np.float64).transpose(0, 2, 1, 3).reshape(H * d, H * d))


def inverse_of_heads(
    heads: HeadFactors, parts: list[HeadSides], readouts: SharedReadouts, constant: float, damping: float
) -> Inverse:
    """damping: relative to the diagonal of JᵀJ."""
    sides = [
        tuple(_inverse(side, damping) for side in (part.queries, part.first, part.keys, part.asking))
        for part in parts
    ]
    of_readouts = _factorised(readouts.normal, _SMALLEST_SHARED + damping)

    def inverse(vector: Array) -> Array:
        K, Q, v, c = heads.split(vector)
        found_K, found_Q = np.empty_like(K), np.empty_like(Q)
        for h, (queries, first, keys, asking) in enumerate(sides):
            found_K[h] = queries @ K[h] @ first * parts[h].mass
            found_Q[h] = keys @ Q[h] @ asking * parts[h].mass
        found_v = of_readouts(v.ravel()).reshape(v.shape)
        return heads.joined(found_K, found_Q, found_v, c / (constant * (1.0 + damping)))

    return inverse


def _factorised(block: Array, ridge: Array | float) -> Inverse:
    """(block + ridge·diagonal)⁻¹."""
    diagonal = np.diag(block)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-12 * diagonal.max()))
    damped = block * scale[:, None]
    damped *= scale
    damped[np.diag_indices_from(damped)] += ridge
    factor = cho_factor(damped, lower=True, check_finite=False)
    return lambda vector: np.asarray(scale * cho_solve(factor, scale * vector, check_finite=False))


def _moment(rows: Array, weights: Array) -> Array:
    return np.asarray((rows.T * weights) @ rows)


def _inverse(side: Array, damping: float) -> Array:
    """Damped relative to its diagonal; rows of zeros beyond a rank stay zero."""
    strength = np.diag(side)
    used = strength > 1e-12 * strength.max(initial=0.0)
    scale = np.where(used, 1.0 / np.sqrt(np.where(used, strength, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(side * scale[:, None] * scale)
    found = vectors / (np.maximum(values, 0.0) + _RIDGE + damping) @ vectors.T
    return np.asarray(found * scale[:, None] * scale)
