"""A meter that is a known matrix: solvers can be tested on it without an oracle."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["MatrixMeter"]

_BAR = 4.0  # standard deviations that the length of an error, a root of a sum of squares, hardly ever exceeds


class MatrixMeter:
    """Measures W itself, with Gaussian noise of standard deviation `noise` on every form of unit vectors.

    measured: how many forms were asked for until now. facing: what solvers are told of b's.

    >>> meter = MatrixMeter(np.diag([1.0, 2.0]))
    >>> meter.project(None, np.eye(2)), meter.measured
    (array([[1., 0.],
           [0., 2.]]), 4)
    """

    def __init__(self, W: Array, *, noise: float = 0.0, facing: Array | None = None, seed: int = 0) -> None:
        self._W = np.asarray(W, dtype=np.float64)
        self._noise = noise
        self._facing = facing
        self._rng = np.random.default_rng(seed)
        self.measured = 0

    @property
    def width(self) -> int:
        return len(self._W)

    @property
    def facing(self) -> Array | None:
        return self._facing

    def resolution(self) -> float:
        return 1e-16 * float(np.linalg.norm(self._W)) / self.width

    def forms(self, A: Array, B: Array) -> Array:
        self.measured += len(A)
        sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
        return np.asarray(
            np.einsum("kd,kd->k", A @ self._W, B) + self._noise * sizes * self._rng.standard_normal(len(A))
        )

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        return self.measure(basis, B, rest_is_zero=rest_is_zero)[0]

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_zero: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """As `project`, and a bound on the length of every column's error."""
        if basis is not None and np.abs(basis.T @ basis - np.eye(basis.shape[1])).max(initial=0.0) > 1e-9:
            raise ValueError("the columns of `basis` are not orthonormal, which `Meter.project` asks for")
        exact = self._W @ B if basis is None else basis.T @ self._W @ B
        self.measured += exact.size
        noise = max(self._noise, self.resolution())
        error = np.full(B.shape[1], _BAR * noise * np.sqrt(max(len(exact), 1)))
        return np.asarray(exact + self._noise * self._rng.standard_normal(exact.shape)), error
