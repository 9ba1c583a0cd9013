"""Theorem 5.1's solver: the matrix of least nuclear norm that agrees with all measurements a_kᵀ W b_k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import FormMeter
from unsoftmax.models.matrices import Dense, Factors
from unsoftmax.solvers.base import Announce, Solution
from unsoftmax.solvers.fixed_rank import balanced, polish

__all__ = ["NuclearNorm", "NuclearNormSolution", "PairDraw", "gaussian_pairs"]

PairDraw = Callable[[int, int, np.random.Generator], tuple[Array, Array]]
"""draw(n, d, rng): rows (A, B), (n, d) each, whose forms are measured."""


def gaussian_pairs(n: int, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Independent standard normal rows, as Theorem 5.1 has them."""
    return rng.standard_normal((n, width)), rng.standard_normal((n, width))


@dataclass(frozen=True)
class NuclearNormSolution(Solution):
    """The minimiser, its rank, the relative residuals where the iteration stopped, and how many iterations it
    took.

    polished: whether Gauss-Newton on the found rank met every measurement to rounding without moving away
    from the iterate. measurements: how many forms it agrees with.
    """

    primal: float = 0.0
    dual: float = 0.0
    iterations: int = 0
    polished: bool = True
    measurements: int = 0


@dataclass(frozen=True)
class NuclearNorm:
    """min |X|_* subject to a_kᵀ X b_k = t_k, exactly, by alternating directions.

    X is the projection on the measurements (one Cholesky factor of the m×m Gram matrix, whose entries are
    (a_k·a_l)(b_k·b_l), so that no m×d² matrix exists), Z the shrunk singular values. Stops when the primal
    residual |X - Z| and the dual one rho·|Z - Z_before| are both below `tol` relative to what they compare.
    Then the rank of Z is known, and Gauss-Newton on that rank finds the last digits; when that moves away
    from Z the iteration goes on, ten times more exact.

    >>> rng = np.random.default_rng(0)
    >>> W, A, B = np.outer(np.arange(6), np.ones(6)), rng.standard_normal((30, 6)), rng.standard_normal((30,
    ...     6))
    >>> found = NuclearNorm().fit(A, B, np.einsum("kd,kd->k", A @ W, B))
    >>> found.rank, bool(np.allclose(found.matrix.dense(), W))
    (1, True)
    """

    tol: float = 1e-5
    finest: float = 1e-11
    iterations: int = 3000
    relaxation: float = 1.7
    measurements: int | None = None
    draw: PairDraw = gaussian_pairs

    def solve(
        self, meter: FormMeter, rng: np.random.Generator, progress: Announce | None = None
    ) -> NuclearNormSolution:
        """W from the forms of `measurements` pairs (None: d², enough for any rank); pairs that the meter
        cannot read are left out."""
        d = meter.width
        n = d * d if self.measurements is None else self.measurements
        if progress is not None:
            progress(n)
        A, B = self.draw(n, d, rng)
        t = meter.forms(A, B)
        read = np.isfinite(t)
        return self.fit(A[read], B[read], t[read])

    def fit(self, A: Array, B: Array, t: Array) -> NuclearNormSolution:
        """The minimiser for given pairs; `polished` and the residuals say how well it is known."""
        d = A.shape[1]
        scale = float(np.linalg.norm(t)) / np.sqrt(len(t)) if len(t) else 0.0
        if scale == 0.0:
            empty = Factors(np.zeros((d, 0)), np.zeros((d, 0)))
            return NuclearNormSolution(empty, np.inf, 0, measurements=len(t))
        project = _Affine(A, B, t / scale)
        Z = project(np.zeros((d, d)))
        U = np.zeros((d, d))
        rho = 1.0 / max(float(np.linalg.norm(Z, 2)), 1e-300)
        tol, primal, dual, rank = self.tol, np.inf, np.inf, d
        for iteration in range(1, self.iterations + 1):
            X = project(Z - U)
            relaxed = self.relaxation * X + (1.0 - self.relaxation) * Z
            left, values, right = np.linalg.svd(relaxed + U)
            values = np.maximum(values - 1.0 / rho, 0.0)
            rank = int(np.count_nonzero(values))
            before, Z = Z, (left[:, :rank] * values[:rank]) @ right[:rank]
            U += relaxed - Z
            primal_size, dual_size = float(np.linalg.norm(X - Z)), rho * float(np.linalg.norm(Z - before))
            primal = primal_size / max(float(np.linalg.norm(X)), float(np.linalg.norm(Z)), 1e-300)
            dual = dual_size / max(rho * float(np.linalg.norm(U)), 1e-300)
            if primal <= tol and dual <= tol:
                # smaller ones may still be on their way to zero
                rank = int(np.count_nonzero(values > 100.0 * tol * values[0]))
                root = np.sqrt(values[:rank])
                found = _polished(
                    A, B, t / scale, left[:, :rank] * root, right[:rank].T * root, allowed=100.0 * tol
                )
                if found is not None:
                    matrix = Factors(found[0] * np.sqrt(scale), found[1] * np.sqrt(scale))
                    return NuclearNormSolution(
                        matrix, np.inf, rank, False, primal, dual, iteration, True, len(t)
                    )
                if tol <= self.finest:
                    break
                tol /= 10.0
            elif iteration % 10 == 0 and iteration < 1000:  # later changes would keep it from converging
                factor = 2.0 if primal > 5.0 * dual else 0.5 if dual > 5.0 * primal else 1.0
                rho *= factor
                U /= factor
        unpolished = Dense(scale * project(Z))
        return NuclearNormSolution(unpolished, np.inf, rank, False, primal, dual, iteration, False, len(t))


class _Affine:
    """Projection on {X : a_kᵀ X b_k = t_k}."""

    def __init__(self, A: Array, B: Array, t: Array) -> None:
        from scipy.linalg import cho_factor

        self._A, self._B, self._t = A, B, t
        gram = (A @ A.T) * (B @ B.T)
        # repeated measurements agree; the factor must exist all the same
        gram[np.diag_indices_from(gram)] *= 1.0 + 1e-14
        self._factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, X: Array) -> Array:
        from scipy.linalg import cho_solve

        miss = np.einsum("kd,kd->k", self._A @ X, self._B) - self._t
        weights = cho_solve(self._factor, miss, check_finite=False)
        return np.asarray(X - (self._A * weights[:, None]).T @ self._B)


def _polished(
    A: Array, B: Array, t: Array, L: Array, R: Array, *, allowed: float
) -> tuple[Array, Array] | None:
    """Factors near the given ones that meet all measurements to their rounding; None when there are none near
    or the rank does not pin them down."""
    d, r = L.shape
    if r == 0 or r * (2 * d - r) > len(t):
        return None
    L, R = balanced(L, R)
    L_new, R_new, residual = polish(A, B, t, L, R, steps=12)
    moved = float(np.linalg.norm(L_new @ R_new.T - L @ R.T) / np.linalg.norm(L @ R.T))
    return (L_new, R_new) if residual <= 1e-10 and moved <= allowed else None
