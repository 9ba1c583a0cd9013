"""All heads at once, by Gauss-Newton: for heads that no asking row holds apart.

The model is Σ_h σ(aᵀW_h b + L)·(a·v_h), with L = log(n/m) when the first row is sent n times and the last m times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lstsq
from scipy.special import expit

from unsoftmax.oracles import Array

__all__ = ["JointHeads", "joint_step"]


@dataclass(frozen=True)
class JointHeads:
    """W (H, d, n) and v (H, d) of all heads."""

    W: Array
    v: Array

    @property
    def unknowns(self) -> int:
        return self.W.size + self.v.size

    def predict(self, A: Array, B: Array, L: Array) -> Array:
        """The response for every row of A and B."""
        weights = expit(self.scores(A, B) + L)
        return np.asarray(np.einsum("hq,hq->q", weights, self.v @ A.T))

    def scores(self, A: Array, B: Array) -> Array:
        return np.asarray(np.einsum("qi,hij,qj->hq", A, self.W, B, optimize=True))


def joint_step(heads: JointHeads, A: Array, B: Array, L: Array, answers: Array) -> tuple[JointHeads, float, float]:
    """(corrected heads, largest relative change of a head, residual before): one least-squares step."""
    H, d, n = heads.W.shape
    Q = len(A)
    scores = heads.scores(A, B) + L
    weights = expit(scores)
    voices = heads.v @ A.T
    slopes = weights * expit(-scores) * voices
    size = np.abs(voices).sum(axis=0) + np.linalg.norm(A, axis=1) * np.linalg.norm(heads.v) / np.sqrt(d)
    w_unit = np.linalg.norm(heads.W, axis=(1, 2)) / np.sqrt(d * n)
    v_unit = np.linalg.norm(heads.v, axis=1) / np.sqrt(d)
    jacobian = np.empty((Q, H * (d * n + d)))
    products = (A[:, :, None] * B[:, None]).reshape(Q, d * n)
    for h in range(H):
        start = h * (d * n + d)
        jacobian[:, start : start + d * n] = (slopes[h] * w_unit[h] / size)[:, None] * products
        jacobian[:, start + d * n : start + d * n + d] = (weights[h] * v_unit[h] / size)[:, None] * A
    residual = (answers - np.einsum("hq,hq->q", weights, voices)) / size
    found = np.asarray(lstsq(jacobian, residual, lapack_driver="gelsy", check_finite=False)[0])
    change = found.reshape(H, d * n + d)
    dW, dv = change[:, : d * n].reshape(H, d, n), change[:, d * n :]
    largest = max(float(np.linalg.norm(change[h, : d * n])) / np.sqrt(d * n) for h in range(H))
    largest = max(largest, max(float(np.linalg.norm(dv[h])) / np.sqrt(d) for h in range(H)))
    moved = JointHeads(heads.W + dW * w_unit[:, None, None], heads.v + dv * v_unit[:, None])
    return moved, largest, float(np.sqrt(np.mean(residual**2)))
