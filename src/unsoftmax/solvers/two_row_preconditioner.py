"""Approximate inverses of JᵀJ for heads with scalar answers: what heads share is left out.

A narrow head's block is held and factorised. A wide head's block, of 2 r d unknowns, would fill gigabytes;
its parts for K, Q and v are nearly Kronecker products of a side of ranks and a side of rows, and are held as
these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.solvers.head_factors import HeadFactors, with_one
from unsoftmax.solvers.joint_refinement import Inverse
from unsoftmax.solvers.two_row_normal import HeadAt

__all__ = ["WideHead", "inverse_of_blocks", "inverse_of_wide_heads"]

_SMALLEST_PIVOT = 1e-9  # relative ridge that makes a head's block, singular along its gauge, invertible
_RIDGE = 1e-4  # relative: what the Kronecker form leaves out makes smaller eigenvalues meaningless


def inverse_of_blocks(blocks: Iterable[Array], constant: float, damping: Array) -> Inverse:
    """Of JᵀJ of every head by itself, and of the constant."""
    factors, start = [], 0
    for block in blocks:
        size = len(block)
        diagonal = np.maximum(np.diag(block), 1e-12 * np.diag(block).max())
        scale = 1.0 / np.sqrt(diagonal)
        ridge = _SMALLEST_PIVOT + damping[start : start + size] * scale**2
        damped = block * scale[:, None] * scale + np.diag(ridge)
        factors.append(
            (slice(start, start + size), cho_factor(damped, lower=True, check_finite=False), scale)
        )
        start += size

    def inverse(vector: Array) -> Array:
        out = np.empty_like(vector)
        for part, factor, scale in factors:
            out[part] = scale * cho_solve(factor, scale * vector[part], check_finite=False)
        out[-1] = vector[-1] / (constant + damping[-1])
        return out

    return inverse


@dataclass(frozen=True)
class WideHead:
    """Sums over answers, weighted by the squared slopes, whose sum is `mass`: queries, keys (r, r) of Q [b;
    1] and K a; first (d, d) of a and asking (d+1, d+1) of [b; 1]. values (d, d): of the gradient in v.
    """

    queries: Array
    first: Array
    keys: Array
    asking: Array
    values: Array
    mass: float

    @classmethod
    def empty(cls, heads: HeadFactors) -> Self:
        r, d = heads.K.shape[1:]
        queries, first, keys, asking, values = (np.zeros((n, n)) for n in (r, d, r, d + 1, d))
        return cls(queries, first, keys, asking, values, 0.0)

    def with_more(self, A: Array, B: Array, weights: Array, at: HeadAt, grid: bool) -> Self:
        """With the sums over one more block of answers."""
        squares = (weights * at.slope) ** 2
        of_first, of_last = squares.sum(axis=1), squares.sum(axis=0 if grid else 1)
        shown = weights**2 * at.share
        if grid:
            mixed = A.T @ shown @ B
            values = _moment(A, (shown * at.share).sum(axis=1)) + mixed + mixed.T
            values += _moment(B, (weights**2).sum(axis=0))
        else:
            values = _moment(at.share * A + B, (weights**2)[:, 0])
        return type(self)(
            self.queries + _moment(at.queries, of_last),
            self.first + _moment(A, of_first),
            self.keys + _moment(at.keys, of_first),
            self.asking + _moment(with_one(B), of_last),
            self.values + values,
            self.mass + float(squares.sum()),
        )

    def diagonal(self) -> tuple[Array, Array, Array]:
        """Of JᵀJ for K (r, d), Q (r, d+1) and v (d,), nearly."""
        mass = max(self.mass, 1e-300)
        return (
            np.outer(np.diag(self.queries), np.diag(self.first)) / mass,
            np.outer(np.diag(self.keys), np.diag(self.asking)) / mass,
            np.diag(self.values),
        )


def inverse_of_wide_heads(
    heads: HeadFactors, parts: list[WideHead], constant: float, damping: float
) -> Inverse:
    """damping: relative to the diagonal of JᵀJ."""
    sides = [
        tuple(
            _inverse(side, damping)
            for side in (part.queries, part.first, part.keys, part.asking, part.values)
        )
        for part in parts
    ]

    def inverse(vector: Array) -> Array:
        K, Q, v, c = heads.split(vector)
        found_K, found_Q, found_v = np.empty_like(K), np.empty_like(Q), np.empty_like(v)
        for h, (queries, first, keys, asking, values) in enumerate(sides):
            found_K[h] = queries @ K[h] @ first * parts[h].mass
            found_Q[h] = keys @ Q[h] @ asking * parts[h].mass
            found_v[h] = values @ v[h]
        return heads.joined(found_K, found_Q, found_v, c / (constant * (1.0 + damping)))

    return inverse


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
