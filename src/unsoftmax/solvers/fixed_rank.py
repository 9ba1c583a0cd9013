"""W of a given rank from measurements a_kᵀ W b_k that somebody else chose: spectral start, damped
Gauss-Newton, bounded restarts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.matrices import Factors
from unsoftmax.solvers.shrinkage import shrunk_starts

__all__ = ["FixedRank", "FixedRankSolution", "balanced", "polish"]

_EXACT = 1e-12  # relative residual at which a descent has arrived
_DAMPING_TRIES = 8  # at 4 each, damping grows by 65,000: a step that still fails is at a minimum


@dataclass(frozen=True)
class FixedRankSolution:
    """What came out: the matrix, its residuals relative to the measurements, and how many starts it took.

    spread: typical size of the error of W (Frobenius norm) that errors of the measurements of size one would
    cause: the measurements' conditioning at this W. Infinite where directions of W are not seen at all.
    """

    matrix: Factors
    residual: float
    held_out: float
    starts: int
    spread: float


@dataclass(frozen=True)
class FixedRank:
    """Minimises Σ (a_kᵀ L Rᵀ b_k - t_k)² over d×r factors L and R.

    The first start is the best rank-r part of Σ t_k a_k b_kᵀ, the next three are rough fits with a price on
    the nuclear norm, the others random. A descent ends when the residual is zero to rounding, or no longer
    falls. A tenth of the measurements is held out and decides which start is believed.

    >>> rng = np.random.default_rng(0)
    >>> W, A, B = np.outer(np.arange(6), np.ones(6)), rng.standard_normal((40, 6)), rng.standard_normal((40,
    ...     6))
    >>> found = FixedRank(1).solve(A, B, np.einsum("kd,kd->k", A @ W, B), rng)
    >>> bool(np.allclose(found.matrix.dense(), W))
    True
    """

    rank: int
    restarts: int = 20
    steps: int = 60
    rtol: float = 1e-8
    hold_out: bool = True

    def solve(self, A: Array, B: Array, t: Array, rng: np.random.Generator) -> FixedRankSolution:
        """The best of all starts on the held-out measurements; the first that is good to `rtol` ends the
        search."""
        m, d = A.shape
        if self.rank == 0 or not t.any():
            empty = Factors(np.zeros((d, 0)), np.zeros((d, 0)))
            loss = 1.0 if t.any() else 0.0
            return FixedRankSolution(empty, loss, loss, 0, 0.0)
        order = rng.permutation(m)
        n_held = min(max(m // 10, 1), max(m - self.rank * (2 * d - self.rank), 0)) if self.hold_out else 0
        held, used = order[:n_held], order[n_held:]
        starts = 1 + self.restarts
        best: tuple[float, Array, Array] | None = None
        left, values, right = np.linalg.svd((_whitened(A[used]) * t[used, None]).T @ _whitened(B[used]))
        root, size = np.sqrt(values[: self.rank]), np.sqrt(values[0] / d)
        rough = shrunk_starts(A[used], B[used], t[used], self.rank)
        for start in range(starts):
            L, R = left[:, : self.rank] * root, right[: self.rank].T * root
            if start > 0:
                L, R = next(rough, None) or tuple(size * rng.standard_normal((2, d, self.rank)))
            L, R, residual = polish(A[used], B[used], t[used], L, R, steps=self.steps)
            loss = residual if not n_held else max(residual, _residual(A[held], B[held], t[held], L, R))
            if best is None or loss < best[0]:
                best = (loss, L, R)
            if loss <= self.rtol:
                starts = start + 1
                break
        assert best is not None
        loss, L, R = best
        if loss <= self.rtol:  # the right one: the measurements held out may help now
            L, R, _ = polish(A, B, t, L, R, steps=self.steps)
        return FixedRankSolution(Factors(L, R), _residual(A, B, t, L, R), loss, starts, _spread(A, B, L, R))


def polish(
    A: Array, B: Array, t: Array, L: Array, R: Array, *, steps: int = 60
) -> tuple[Array, Array, float]:
    """Damped Gauss-Newton steps on the factors, and the relative residual where they end."""
    scale = float(np.linalg.norm(t)) or 1.0
    L, R = balanced(L, R)
    error = _forms(A, B, L, R) - t
    size, damping, slow = float(np.linalg.norm(error)), 1e-2, 0
    for _ in range(steps):
        if size <= 1e-16 * scale or slow >= 6:
            break
        step = _Step(A, B, L, R, error)
        for _ in range(_DAMPING_TRIES):
            L_new, R_new = step(damping)
            error_new = _forms(A, B, L_new, R_new) - t
            size_new = float(np.linalg.norm(error_new))
            if size_new < size:
                break
            damping *= 4.0
        else:
            break
        slow = slow + 1 if size_new > (0.97 if size > _EXACT * scale else 0.5) * size else 0
        damping = max(damping / (10.0 if size_new < 0.5 * size else 3.0), 1e-15)
        L, R = balanced(L_new, R_new)
        error, size = error_new, size_new
    return L, R, size / scale


class _Step:
    """The step (JᵀJ + damping)⁻¹ Jᵀ error in the smaller of its two forms."""

    def __init__(self, A: Array, B: Array, L: Array, R: Array, error: Array) -> None:
        self._L, self._R = L, R
        self._J = _jacobian(A, B, L, R)
        self._wide = self._J.shape[0] <= self._J.shape[1]
        self._gram = self._J @ self._J.T if self._wide else self._J.T @ self._J
        self._right = error if self._wide else self._J.T @ error
        self._size = float(np.trace(self._gram)) / len(self._gram)

    def __call__(self, damping: float) -> tuple[Array, Array]:
        from scipy.linalg import solve

        damped = self._gram + damping * self._size * np.eye(len(self._gram))
        try:
            solution = np.asarray(
                solve(damped, self._right, assume_a="pos", check_finite=False), dtype=np.float64
            )
        except np.linalg.LinAlgError:  # rounding made it indefinite
            solution = np.asarray(np.linalg.lstsq(damped, self._right, rcond=None)[0], dtype=np.float64)
        move = self._J.T @ solution if self._wide else solution
        d, r = self._L.shape
        return self._L - move[: d * r].reshape(d, r), self._R - move[d * r :].reshape(d, r)


def balanced(L: Array, R: Array) -> tuple[Array, Array]:
    """The same product with factors of equal size, singular values shared between them."""
    q_left, r_left = np.linalg.qr(L)
    q_right, r_right = np.linalg.qr(R)
    left, values, right = np.linalg.svd(r_left @ r_right.T)
    root = np.sqrt(values)
    return (q_left @ left) * root, (q_right @ right.T) * root


def _jacobian(A: Array, B: Array, L: Array, R: Array) -> Array:
    m = len(A)
    return np.concatenate(
        [
            (A[:, :, None] * (B @ R)[:, None, :]).reshape(m, -1),
            (B[:, :, None] * (A @ L)[:, None, :]).reshape(m, -1),
        ],
        axis=1,
    )


def _forms(A: Array, B: Array, L: Array, R: Array) -> Array:
    return np.asarray(np.einsum("kr,kr->k", A @ L, B @ R))


def _residual(A: Array, B: Array, t: Array, L: Array, R: Array) -> float:
    return float(np.linalg.norm(_forms(A, B, L, R) - t) / (np.linalg.norm(t) or 1.0))


def _whitened(rows: Array) -> Array:
    """Rows turned so that their second moment is the identity, where they have any."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    kept = values > 1e-10 * values[0]
    return np.asarray((left[:, kept] / values[kept]) @ right[kept])


def _spread(A: Array, B: Array, L: Array, R: Array) -> float:
    """Frobenius norm of the linear map from measurements to W, on the r(2d - r) directions in which W can
    move."""
    from scipy.linalg import solve_triangular

    r = L.shape[1]
    U, V = np.linalg.qr(L)[0], np.linalg.qr(R)[0]
    U_rest, V_rest = np.linalg.qr(U, mode="complete")[0][:, r:], np.linalg.qr(V, mode="complete")[0][:, r:]
    AU, BV = A @ U, B @ V
    parts = [(A @ U_rest, BV), (AU, BV), (AU, B @ V_rest)]
    moves = np.concatenate(
        [(left[:, :, None] * right[:, None, :]).reshape(len(A), -1) for left, right in parts], axis=1
    )
    if len(moves) < moves.shape[1]:
        return float("inf")
    triangle = np.asarray(np.linalg.qr(moves, mode="r"))
    if np.abs(triangle.diagonal()).min() <= 1e-13 * np.abs(triangle.diagonal()).max():
        return float("inf")
    return float(np.linalg.norm(solve_triangular(triangle, np.eye(len(triangle)), check_finite=False)))
