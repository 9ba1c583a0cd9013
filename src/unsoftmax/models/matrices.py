"""A d×d matrix held dense or as factors left·rightᵀ, so that wide low-rank heads never need d² numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError

__all__ = [
    "MATRIX_TENSORS",
    "Dense",
    "Factors",
    "Matrix",
    "as_matrix",
    "difference_norm",
    "matrix_of_tensors",
    "tensors_of_matrix",
]

MATRIX_TENSORS = frozenset({"W", "W.left", "W.right"})  # names in files


@dataclass(frozen=True, eq=False)
class Dense:
    """A matrix as it is."""

    array: Array

    @property
    def width(self) -> int:
        return int(self.array.shape[0])

    def dense(self) -> Array:
        return self.array

    def norm(self) -> float:
        return self._norm

    @cached_property
    def _norm(self) -> float:
        return float(np.linalg.norm(self.array))

    def apply(self, vectors: Array) -> Array:
        """W x for every row x of `vectors`."""
        return vectors @ self.array.T

    def svd(self) -> tuple[Array, Array, Array]:
        """U, s, V with W = U diag(s) Vᵀ."""
        left, values, right = np.linalg.svd(self.array)
        return left, values, right.T


@dataclass(frozen=True, eq=False)
class Factors:
    """left·rightᵀ with both factors d×r.

    >>> Factors(np.ones((2, 1)), np.ones((2, 1))).dense()
    array([[1., 1.],
           [1., 1.]])
    """

    left: Array
    right: Array

    @property
    def width(self) -> int:
        return int(self.left.shape[0])

    def dense(self) -> Array:
        return self.left @ self.right.T

    def norm(self) -> float:
        return self._norm

    @cached_property
    def _norm(self) -> float:
        return float(np.linalg.norm(np.linalg.qr(self.left)[1] @ np.linalg.qr(self.right)[1].T))

    def apply(self, vectors: Array) -> Array:
        """W x for every row x of `vectors`."""
        return (vectors @ self.right) @ self.left.T

    def svd(self) -> tuple[Array, Array, Array]:
        """U, s, V with W = U diag(s) Vᵀ, at most r columns."""
        q_left, r_left = np.linalg.qr(self.left)
        q_right, r_right = np.linalg.qr(self.right)
        left, values, right = np.linalg.svd(r_left @ r_right.T)
        return q_left @ left, values, q_right @ right.T


Matrix = Dense | Factors


def as_matrix(value: object) -> Matrix:
    """A square array, or a pair (left, right) of d×r factors, as a `Matrix`; checked for shape and
    finiteness."""
    if isinstance(value, Dense | Factors):
        return value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise UsageError(
                f"factors are a pair (left, right) with W = left @ right.T, not {len(value)} arrays"
            )
        left, right = (_finite(part, "a factor of W") for part in value)
        if left.ndim != 2 or left.shape != right.shape:
            raise UsageError(f"factors of W must both be (d, r), not {left.shape} and {right.shape}")
        return Factors(left, right)
    array = _finite(value, "W")
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UsageError(f"W must be square (d, d) or a pair of (d, r) factors, not {array.shape}")
    return Dense(array)


def tensors_of_matrix(matrix: Matrix) -> dict[str, Array]:
    """The arrays of a file that hold W."""
    if isinstance(matrix, Factors):
        return {"W.left": matrix.left, "W.right": matrix.right}
    return {"W": matrix.array}


def matrix_of_tensors(tensors: dict[str, Array], family: str) -> object:
    """What `as_matrix` takes, from the arrays of a file."""
    if ("W" in tensors) == ("W.left" in tensors and "W.right" in tensors):
        raise ModelFileError(f"a {family} file holds either W or both W.left and W.right")
    return tensors["W"] if "W" in tensors else (tensors["W.left"], tensors["W.right"])


def difference_norm(first: Matrix, second: Matrix) -> float:
    """Frobenius norm of first - second; factors are never multiplied out."""
    if isinstance(first, Factors) and isinstance(second, Factors):
        joint = Factors(np.hstack([first.left, second.left]), np.hstack([first.right, -second.right]))
        if joint.left.shape[1] < joint.width:
            return joint.norm()
    return float(np.linalg.norm(first.dense() - second.dense()))


def _finite(value: object, name: str) -> Array:
    array = np.array(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds NaN or infinity")
    return array
