"""A random orthonormal basis that is applied, never stored: reflections, random signs and a cosine
transform."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array

__all__ = ["FacingBasis", "RandomBasis"]

# columns computed together: at d = 1536 what they need stays in the processor's cache; 85 at once took five
# times as long
_AT_ONCE = 16


class RandomBasis:
    """G = H₁ D F H₂: two random reflections around sign flips and a fast transform. O(d log d) a vector, O(d)
    memory; a column costs O(d), because reflections add multiples of fixed rows to those of D F.

    >>> basis = RandomBasis(5, np.random.default_rng(0))
    >>> G = basis.columns(0, 5)
    >>> bool(np.allclose(G.T @ G, np.eye(5)))
    True
    """

    def __init__(self, width: int, rng: np.random.Generator) -> None:
        self.width = width
        self._outer = _unit(rng, width)
        self._signs = rng.choice([-1.0, 1.0], width)
        self._inner = _unit(rng, width)
        self._cosines = _CosineTransform(width)
        # column j of G is D F e_j, less the j-th row of `_shares` times `_added`
        turned = self._cosines(self._inner[None])[0] * self._signs
        self._shares = np.stack(
            [self._inner, self._cosines.back((self._signs * self._outer)[None])[0]], axis=1
        )
        self._added = 2.0 * np.stack([turned - 2.0 * (self._outer @ turned) * self._outer, self._outer])

    def columns(self, start: int, stop: int) -> Array:
        """Columns start..stop as a (d, stop - start) array."""
        return self._cosines.columns(start, stop, self._signs, self._shares[start:stop], self._added).T

    def apply(self, rows: Array) -> Array:
        """G x for every row x."""
        turned = self._cosines(_reflect(np.array(rows, dtype=np.float64), self._inner))
        turned *= self._signs
        return _reflect(turned, self._outer)

    def against(self, vector: Array) -> Array:
        """Gᵀ x: the products of one vector with every column, in O(d log d)."""
        turned = _reflect(np.array(vector[None], dtype=np.float64), self._outer) * self._signs
        return np.asarray(_reflect(self._cosines.back(turned), self._inner)[0])


class _CosineTransform:
    """The orthonormal cosine transform (DCT-II) of rows: a real Fourier transform of their even entries and
    then, backwards, the odd ones."""

    def __init__(self, width: int) -> None:
        self._order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)[::-1]])
        self._turns = np.sqrt(2.0 / width) * np.exp(-0.5j * np.pi / width * np.arange(width // 2 + 1))
        self._turns[0] *= np.sqrt(0.5)
        around = np.cos(0.5 * np.pi / width * np.arange(4 * width))
        self._circle = np.stack([around, np.roll(around, width)])  # cosines, and sines
        self._steps = np.empty((2, 0, width))

    def columns(self, start: int, stop: int, factors: Array, shares: Array, added: Array) -> Array:
        """The transforms of unit vectors start..stop, entry by entry times `factors`, less shares @ added, as
        rows.

        Entry k of the transform of e_j is the cosine of (2j + 1)k steps around a circle of 4d. Those of the
        first vector and 2k steps for every other one, which serve again, make all of them.

        >>> transform = _CosineTransform(5)
        >>> nothing = np.zeros((3, 1)), np.zeros((1, 5))
        >>> bool(np.allclose(transform.columns(1, 4, np.ones(5), *nothing), transform(np.eye(5))[1:4]))
        True
        """
        width, n = len(self._order), stop - start
        if n > self._steps.shape[1]:
            self._steps = self._round(np.multiply.outer(np.arange(0, 2 * n, 2), np.arange(width)))
        scale = np.full(width, np.sqrt(2.0 / width))
        scale[0] *= np.sqrt(0.5)
        cosines, sines = self._round((2 * start + 1) * np.arange(width)) * (factors * scale)
        rows, other = np.empty((n, width)), np.empty((min(n, _AT_ONCE), width))
        for first in range(0, n, _AT_ONCE):
            part = slice(first, min(first + _AT_ONCE, n))
            here, taken = rows[part], other[: part.stop - first]
            np.multiply(self._steps[0, part], cosines, out=here)
            here -= np.multiply(self._steps[1, part], sines, out=taken)
            here -= np.matmul(shares[part], added, out=taken)
        return rows

    def _round(self, steps: NDArray[np.int64]) -> Array:
        """Cosines and sines of these numbers of steps."""
        return np.asarray(np.take(self._circle, steps % self._circle.shape[1], axis=1))

    def __call__(self, rows: Array) -> Array:
        width, half = len(self._order), len(self._turns)
        waves = np.fft.rfft(rows[:, self._order], axis=1)
        waves *= self._turns
        turned = np.empty_like(rows)
        turned[:, :half] = waves.real
        np.negative(waves.imag[:, width - half : 0 : -1], out=turned[:, half:])
        return turned

    def back(self, rows: Array) -> Array:
        """The inverse, which is the transpose.

        >>> transform = _CosineTransform(5)
        >>> bool(np.allclose(transform.back(transform(np.eye(5))), np.eye(5)))
        True
        """
        width, half = len(self._order), len(self._turns)
        waves = rows[:, :half].astype(np.complex128)
        waves.imag[:, width - half : 0 : -1] = -rows[:, half:]
        if width % 2 == 0:  # the last wave was real before it was turned by an eighth of a circle
            waves.imag[:, -1] = -waves.real[:, -1]
        waves /= self._turns
        entries = np.empty_like(rows)
        entries[:, self._order] = np.fft.irfft(waves, n=width, axis=1)
        return entries


class FacingBasis(RandomBasis):
    """A random orthonormal basis whose every vector sees a given one alike: Gᵀv has equal positive entries.

    >>> basis = FacingBasis(4, np.random.default_rng(0), np.array([0.0, 0.0, 3.0, 4.0]))
    >>> np.round(np.array([0.0, 0.0, 3.0, 4.0]) @ basis.columns(0, 4), 9)
    array([2.5, 2.5, 2.5, 2.5])
    """

    def __init__(self, width: int, rng: np.random.Generator, v: Array) -> None:
        super().__init__(width, rng)
        seen = super().against(v)
        normal = seen / np.linalg.norm(seen) - 1.0 / np.sqrt(width)
        length = float(np.linalg.norm(normal))
        self._facing: Array = normal / length if length > 1e-12 else np.zeros(width)
        self._shares = np.column_stack([self._shares, self._facing])
        self._added = np.vstack([self._added, 2.0 * super().apply(self._facing[None])])

    def apply(self, rows: Array) -> Array:
        return super().apply(_reflect(np.array(rows, dtype=np.float64), self._facing))

    def against(self, vector: Array) -> Array:
        return np.asarray(_reflect(super().against(vector)[None], self._facing)[0])


def _unit(rng: np.random.Generator, width: int) -> Array:
    normal = rng.standard_normal(width)
    return normal / np.linalg.norm(normal)


def _reflect(rows: Array, normal: Array) -> Array:
    """Rows reflected at the plane of that normal, in place."""
    rows -= np.multiply((2.0 * (rows @ normal))[:, None], normal)
    return rows
