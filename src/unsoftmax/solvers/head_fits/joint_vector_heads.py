"""All parameters of heads with vector answers at once: one Gauss-Newton step, and how uncertain it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array

__all__ = ["JointVectorHeads", "VectorStep", "vector_step"]


@dataclass(frozen=True)
class JointVectorHeads:
    """W (H, d, n) with n = d, or d + 1 when the last column is the query bias; V (H, d, m)."""

    W: Array
    V: Array

    @property
    def unknowns(self) -> int:
        return int(self.W.size + self.V.size)

    def weights(self, A: Array, B: Array) -> Array:
        """σ(aᵀW_h b) for every pair, (H, Q)."""
        scores = np.einsum("qi,hij,qj->hq", A, self.W, B, optimize=True)
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0))))


@dataclass(frozen=True)
class VectorStep:
    """heads: after the step. change: the largest relative change of a W or a V. doubt: how far either may
    still be off because answers are rounded. residual: root mean square before the step, relative."""

    heads: JointVectorHeads
    change: float
    doubt: float
    residual: float


def vector_step(heads: JointVectorHeads, A: Array, B: Array, responses: Array) -> VectorStep:
    """Least squares over all parameters for responses (Q, m) = Σ_h σ(aᵀW_h b) V_hᵀa.

    >>> rng = np.random.default_rng(0)
    >>> true = JointVectorHeads(rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2)))
    >>> A, B = rng.standard_normal((2, 40, 3))
    >>> told = np.einsum("hq,qi,him->qm", true.weights(A, B), A, true.V)
    >>> near = JointVectorHeads(true.W * (1 + 1e-5), true.V * (1 - 1e-5))
    >>> bool(np.abs(vector_step(near, A, B, told).heads.W - true.W).max() < 1e-8)
    True
    """
    H, d, n = heads.W.shape
    m, Q = heads.V.shape[2], len(A)
    weights = heads.weights(A, B)
    values = np.einsum("qi,him->hqm", A, heads.V)
    size = np.linalg.norm(A, axis=1) * np.linalg.norm(heads.V) / np.sqrt(d)
    w_unit = np.maximum(np.linalg.norm(heads.W, axis=(1, 2)), 1e-300) / np.sqrt(d * n)
    v_unit = np.maximum(np.linalg.norm(heads.V, axis=(1, 2)), 1e-300) / np.sqrt(d * m)
    products = (A[:, :, None] * B[:, None]).reshape(Q, 1, d * n)
    jacobian = np.zeros((Q, m, H, d * n + d * m))
    for h in range(H):
        slopes = (weights[h] * (1.0 - weights[h]) * w_unit[h] / size)[:, None] * values[h]
        jacobian[:, :, h, : d * n] = slopes[:, :, None] * products
        plain = (weights[h] * v_unit[h] / size)[:, None] * A
        for k in range(m):
            jacobian[:, k, h, d * n + k :: m] = plain
    residual = (responses - np.einsum("hq,hqm->qm", weights, values)) / size[:, None]
    flat = jacobian.reshape(Q * m, -1)
    found, doubt = _solved(flat, residual.ravel(), H, d * n)
    change = found.reshape(H, -1)
    parts = (
        np.linalg.norm(change[:, : d * n], axis=1) / np.sqrt(d * n),
        np.linalg.norm(change[:, d * n :], axis=1) / np.sqrt(d * m),
    )
    moved = JointVectorHeads(
        heads.W + change[:, : d * n].reshape(H, d, n) * w_unit[:, None, None],
        heads.V + change[:, d * n :].reshape(H, d, m) * v_unit[:, None, None],
    )
    rounding = EPS * (1.0 + np.linalg.norm(B, axis=1).mean() / np.linalg.norm(A, axis=1).mean())
    noise = max(_rms(residual.ravel() - flat @ found, flat.shape[1]), float(rounding))
    return VectorStep(moved, float(np.max(parts)), noise * doubt, float(np.sqrt(np.mean(residual**2))))


def _solved(jacobian: Array, residual: Array, H: int, of_W: int) -> tuple[Array, float]:
    """The least-squares solution, and the largest root sum of squares of the inverse's rows over a W or a V,
    each relative to the number of its entries."""
    q, triangle = np.linalg.qr(jacobian)
    try:
        inverse = np.linalg.inv(triangle)
    except np.linalg.LinAlgError:
        return np.zeros(jacobian.shape[1]), float("inf")
    found = inverse @ (q.T @ residual)
    found += inverse @ (q.T @ (residual - jacobian @ found))
    spread = np.linalg.norm(inverse, axis=1).reshape(H, -1)
    parts = (spread[:, :of_W], spread[:, of_W:])
    return found, max(float(np.linalg.norm(part, axis=1).max()) / np.sqrt(part.shape[1]) for part in parts)


def _rms(rest: Array, unknowns: int) -> float:
    return float(np.linalg.norm(rest) / np.sqrt(max(len(rest) - unknowns, 1)))
