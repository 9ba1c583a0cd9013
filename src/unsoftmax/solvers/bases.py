"""A random orthonormal basis that is applied, never stored: reflections, random signs and a cosine
transform."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["FacingBasis", "RandomBasis"]


class RandomBasis:
    """G = H₁ D F H₂: two random reflections around sign flips and a fast transform. O(d log d) a vector, O(d)
    memory.

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

    def columns(self, start: int, stop: int) -> Array:
        """Columns start..stop as a (d, stop - start) array."""
        rows = np.multiply(-2.0 * self._inner[start:stop, None], self._inner)
        rows[np.arange(stop - start), np.arange(start, stop)] += 1.0
        return self._turn(rows).T

    def apply(self, rows: Array) -> Array:
        """G x for every row x."""
        return self._turn(_reflect(np.array(rows, dtype=np.float64), self._inner))

    def against(self, vector: Array) -> Array:
        """Gᵀ x: the products of one vector with every column, in O(d log d)."""
        turned = _reflect(np.array(vector[None], dtype=np.float64), self._outer) * self._signs
        return np.asarray(_reflect(self._cosines.back(turned), self._inner)[0])

    def _turn(self, rows: Array) -> Array:
        """H₁ D F x for every row x."""
        turned = self._cosines(rows)
        turned *= self._signs
        return _reflect(turned, self._outer)


class _CosineTransform:
    """The orthonormal cosine transform (DCT-II) of rows: a real Fourier transform of their even entries and
    then, backwards, the odd ones."""

    def __init__(self, width: int) -> None:
        self._order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)[::-1]])
        self._turns = np.sqrt(2.0 / width) * np.exp(-0.5j * np.pi / width * np.arange(width // 2 + 1))
        self._turns[0] *= np.sqrt(0.5)

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

    def columns(self, start: int, stop: int) -> Array:
        rows = np.zeros((stop - start, self.width))
        rows[np.arange(stop - start), np.arange(start, stop)] = 1.0
        return self.apply(rows).T

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
