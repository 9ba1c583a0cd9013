"""JᵀJ of the values of all heads as it is where the rows that heads mix are isotropic, and its inverse.

A change of U_h and T_h is one of V_h, dV_h = dU_hᵀ T_h + U_hᵀ dT_h, and moves the answers by Σ_h dV_hᵀ z_h.
So JᵀJ is Σ M_hk ⟨dV_h, dV_k⟩ with the products M of what heads mix. Heads mix nearly the same, and their
outputs together span all: most of what U can do T can do as well. Each factor's own block is easily inverted,
but as an inverse of both it is a bad one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads

__all__ = ["ValueModel", "damped_inverse"]

# steps of the inner conjugate gradients, and the relative residual at which they end: with 20 steps on four
# heads of a trained layer forty outer steps leave 0.015 of the residual, with 100 steps 0.007, with none 0.09
_STEPS, _ENOUGH = 30, 1e-2
_RIDGE = 1e-5  # relative: what a Kronecker form leaves out makes smaller eigenvalues meaningless


@dataclass(frozen=True)
class ValueModel:
    """U (H, s, d), T (H, s, m). mixed (H, H): products of what heads mix, a coordinate. inverses: of the
    blocks of U and T. ridges: what is added to their diagonals."""

    U: Array
    T: Array
    mixed: Array
    inverses: tuple[Array, Array]
    ridges: tuple[Array, Array]

    @classmethod
    def of(cls, heads: VectorHeads, mixed: Array, damping: float) -> Self:
        """damping: relative, as it is added to JᵀJ."""
        blocks = cls.blocks(heads, mixed)
        shape, dtype = (heads.heads, -1, 1), heads.U.dtype
        inverses = [damped_inverse(block, damping).astype(dtype) for block in blocks]
        ridges = [((_RIDGE + damping) * np.diag(block)).reshape(shape).astype(dtype) for block in blocks]
        return cls(heads.U, heads.T, mixed.astype(dtype), (inverses[0], inverses[1]), (ridges[0], ridges[1]))

    @staticmethod
    def blocks(heads: VectorHeads, mixed: Array) -> tuple[Array, Array]:
        """The blocks of U and of T, on the side of heads and ranks."""
        s = heads.U.shape[1]
        shared = np.kron(mixed, np.ones((s, s)))
        U, T = (part.reshape(-1, part.shape[2]).astype(np.float64) for part in (heads.U, heads.T))
        return (T @ T.T) * shared, (U @ U.T) * shared

    def inverse(self, U: Array, T: Array) -> tuple[Array, Array]:
        """What moves the gradients to these, nearly: a few steps of conjugate gradients."""
        left = [U.copy(), T.copy()]
        found = [np.zeros_like(part) for part in left]
        direction = self._each(left)
        size = first = _product(left, direction)
        for _ in range(_STEPS):
            if not size > _ENOUGH**2 * first:
                break
            image = self._image(direction)
            length = size / _product(direction, image)
            for i in range(2):
                found[i] += length * direction[i]
                left[i] -= length * image[i]
            conditioned = self._each(left)
            before, size = size, _product(left, conditioned)
            direction = [new + size / before * old for new, old in zip(conditioned, direction, strict=True)]
        return found[0], found[1]

    def _image(self, change: list[Array]) -> list[Array]:
        """The product with JᵀJ."""
        U, T = change
        moved = np.matmul(U.swapaxes(1, 2), self.T) + np.matmul(self.U.swapaxes(1, 2), T)
        pulled = np.tensordot(self.mixed, moved, axes=1)
        return [
            np.matmul(self.T, pulled.swapaxes(1, 2)) + self.ridges[0] * U,
            np.matmul(self.U, pulled) + self.ridges[1] * T,
        ]

    def _each(self, left: list[Array]) -> list[Array]:
        """Each factor by its own block."""
        return [_apply(inverse, part) for inverse, part in zip(self.inverses, left, strict=True)]


def _apply(side: Array, tensor: Array) -> Array:
    return np.asarray(side @ tensor.reshape(len(side), -1)).reshape(tensor.shape)


def _product(one: list[Array], two: list[Array]) -> float:
    return float(sum(np.vdot(a, b) for a, b in zip(one, two, strict=True)))


def damped_inverse(side: Array, damping: float) -> Array:
    """The inverse of the symmetric part, damped relative to its diagonal; rows of zeros beyond a rank stay
    zero."""
    strength = np.diag(side)
    used = strength > 1e-12 * strength.max(initial=0.0)
    scale = np.where(used, 1.0 / np.sqrt(np.where(used, strength, 1.0)), 0.0)
    values, vectors = np.linalg.eigh((side + side.T) / 2 * scale[:, None] * scale)
    found = vectors / (np.maximum(values, 0.0) + _RIDGE + damping) @ vectors.T
    return np.asarray(found * scale[:, None] * scale)
