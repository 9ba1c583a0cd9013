"""All heads at once, by Gauss-Newton: for heads that no asking row holds apart.

The model is Σ_h σ(aᵀW_h b + L)·(a·v_h), with L = log(n/m) when the first row is sent n times and the last m
times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array, expit
from unsoftmax.late_scipy import LinearOperator, lsqr, lstsq

__all__ = ["JointHeads", "joint_step", "joint_uncertainty", "matrix_step", "scale_step"]


@dataclass(frozen=True)
class JointHeads:
    """W (H, d, n) and v (H, d) of all heads."""

    W: Array
    v: Array

    @property
    def unknowns(self) -> int:
        return self.W.size + self.v.size

    def predict(self, A: Array, B: Array, L: Array | float) -> Array:
        """The response for every row of A and B."""
        weights = expit(self.scores(A, B) + L)
        return np.asarray(np.einsum("hq,hq->q", weights, self.v @ A.T))

    def scores(self, A: Array, B: Array) -> Array:
        return np.asarray(np.einsum("qi,hij,qj->hq", A, self.W, B, optimize=True))


def joint_step(
    heads: JointHeads, A: Array, B: Array, L: Array, answers: Array
) -> tuple[JointHeads, float, float]:
    """(corrected heads, largest relative change of a head, residual before): one least-squares step."""
    H, d, n = heads.W.shape
    jacobian, residual, w_unit, v_unit = _linearised(heads, A, B, L, answers)
    found = np.asarray(lstsq(jacobian, residual, lapack_driver="gelsy", check_finite=False)[0])
    change = found.reshape(H, d * n + d)
    dW, dv = change[:, : d * n].reshape(H, d, n), change[:, d * n :]
    largest = max(float(np.linalg.norm(change[h, : d * n])) / np.sqrt(d * n) for h in range(H))
    largest = max(largest, max(float(np.linalg.norm(dv[h])) / np.sqrt(d) for h in range(H)))
    moved = JointHeads(heads.W + dW * w_unit[:, None, None], heads.v + dv * v_unit[:, None])
    return moved, largest, float(np.sqrt(np.mean(residual**2)))


def joint_uncertainty(heads: JointHeads, A: Array, B: Array, L: Array, answers: Array) -> float:
    """How far a head's parameters may be off, relative, because the answers are: what remains of them after a
    step, at least their rounding, through the inverse of the linearised problem."""
    H, d, n = heads.W.shape
    jacobian, residual, _, _ = _linearised(heads, A, B, L, answers)
    triangle = np.asarray(np.linalg.qr(np.column_stack([jacobian, residual]), mode="r"))
    size = jacobian.shape[1]
    noise = max(abs(float(triangle[size, size])) / np.sqrt(max(len(A) - size, 1)), EPS)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        try:
            spread = np.linalg.norm(np.linalg.inv(triangle[:size, :size]), axis=1).reshape(H, -1)
        except np.linalg.LinAlgError:
            return float("inf")
    parts = (spread[:, : d * n] / np.sqrt(d * n), spread[:, d * n :] / np.sqrt(d))
    return float(noise * max(np.linalg.norm(part, axis=1).max() for part in parts))


def _linearised(
    heads: JointHeads, A: Array, B: Array, L: Array, answers: Array
) -> tuple[Array, Array, Array, Array]:
    """(jacobian, residual, unit of each W, unit of each v): everything relative, head after head, W before
    v."""
    H, d, n = heads.W.shape
    Q = len(A)
    scores = heads.scores(A, B) + L
    weights = expit(scores)
    read = heads.v @ A.T
    slopes = weights * expit(-scores) * read
    size = np.abs(read).sum(axis=0) + np.linalg.norm(A, axis=1) * np.linalg.norm(heads.v) / np.sqrt(d)
    w_unit = np.linalg.norm(heads.W, axis=(1, 2)) / np.sqrt(d * n)
    v_unit = np.linalg.norm(heads.v, axis=1) / np.sqrt(d)
    jacobian = np.empty((Q, H * (d * n + d)))
    products = (A[:, :, None] * B[:, None]).reshape(Q, d * n)
    for h in range(H):
        start = h * (d * n + d)
        jacobian[:, start : start + d * n] = (slopes[h] * w_unit[h] / size)[:, None] * products
        jacobian[:, start + d * n : start + d * n + d] = (weights[h] * v_unit[h] / size)[:, None] * A
    residual = (answers - np.einsum("hq,hq->q", weights, read)) / size
    return jacobian, np.asarray(residual), np.asarray(w_unit), np.asarray(v_unit)


def matrix_step(
    heads: JointHeads, A: Array, B: Array, answers: Array, base: Array, rows: Array, weight: float
) -> tuple[JointHeads, float, float]:
    """The same for the matrices alone: (corrected heads, largest relative change of a head, residual before).

    The readouts are known, and so are rows = baseᵀW_h (H, n). They matter: heads with equal scores leave
    (v_1·a)(v_0·a) in doubt, which W_0 + v_1cᵀ and W_1 - v_0cᵀ share for any c. weight: of such a row against
    one answer.
    """
    H, d, n = heads.W.shape
    scores = heads.scores(A, B)
    weights, read = expit(scores), heads.v @ A.T
    size = np.abs(read).sum(axis=0)
    units = np.linalg.norm(heads.W, axis=(1, 2)) / np.sqrt(d * n)
    slopes = weights * expit(-scores) * read * units[:, None] / size
    residual = (answers - np.einsum("hq,hq->q", weights, read)) / size
    # of the columns
    lengths = np.sqrt(np.array([(A**2).T @ ((slope**2)[:, None] * B**2) for slope in slopes]))
    lengths = np.maximum(lengths, 1e-3 * lengths.max(axis=(1, 2), keepdims=True))
    trust = weight * units / np.linalg.norm(rows, axis=1)

    def forward(x: Array) -> Array:
        parts = x.reshape(H, d, n) / lengths
        told = sum(
            slope * np.einsum("qj,qj->q", A @ part, B) for slope, part in zip(slopes, parts, strict=True)
        )
        return np.concatenate([told, (trust[:, None] * (base @ parts)).ravel()])

    def backward(y: Array) -> Array:
        told, fixed = y[: len(A)], y[len(A) :].reshape(H, n) * trust[:, None]
        seen = (
            np.array([(A * (slope * told)[:, None]).T @ B for slope in slopes])
            + base[:, None] * fixed[:, None]
        )
        return np.asarray(seen / lengths).ravel()

    operator = LinearOperator((len(A) + H * n, H * d * n), matvec=forward, rmatvec=backward, dtype=np.float64)
    wanted = np.concatenate([residual, ((trust / units)[:, None] * (rows - base @ heads.W)).ravel()])
    found = lsqr(operator, wanted, atol=1e-8, btol=1e-8, iter_lim=1000)[0].reshape(H, d, n) / lengths
    largest = float(np.linalg.norm(found, axis=(1, 2)).max()) / np.sqrt(d * n)
    return (
        JointHeads(heads.W + found * units[:, None, None], heads.v),
        largest,
        float(np.sqrt(np.mean(residual**2))),
    )


def scale_step(matrices: list[Array], v: Array, A: Array, B: Array, missing: Array) -> tuple[Array, Array]:
    """(s, uncertainty): the heads' scores should be 1 + s times as large, from what is missing in some
    answers; a few answers per head suffice.

    Pairs at which all other heads are saturated are long when heads are close, and then tell a matrix well
    but for its scale: together, the scales show in short pairs.

    >>> rng = np.random.default_rng(0)
    >>> W, v = [np.eye(3), np.ones((3, 3))], rng.standard_normal((2, 3))
    >>> A, B = rng.standard_normal((2, 12, 3))
    >>> more = JointHeads(np.array([1.0001 * W[0], W[1]]), v).predict(A, B, 0.0) - JointHeads(np.array(W),
    ...     v).predict(A, B, 0.0)
    >>> np.round(scale_step(W, v, A, B, more)[0], 6) + 0.0
    array([0.0001, 0.    ])
    """
    scores = np.stack([np.einsum("qc,qc->q", A @ matrix, B) for matrix in matrices])
    read = v @ A.T
    size = np.abs(read).sum(axis=0)
    design = (scores * expit(scores) * expit(-scores) * read / size).T
    wanted = missing / size
    found = np.asarray(np.linalg.lstsq(design, wanted, rcond=1e-10)[0])
    noise = np.linalg.norm(wanted - design @ found) / np.sqrt(max(len(A) - len(matrices), 1))
    values, right = np.linalg.svd(design, full_matrices=False)[1:]
    with np.errstate(divide="ignore"):
        return found, np.asarray(noise * np.sqrt(((right / values[:, None]) ** 2).sum(axis=0)))
