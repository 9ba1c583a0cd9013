"""Scores of all heads from vector answers, once their values are known: every sequence shows every weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.two_row_queries import Baseline
from unsoftmax.solvers.head_factors import with_one
from unsoftmax.solvers.sequence_fit import SequenceBlock

__all__ = ["HeadScores", "matrices_from_scores", "read_scores"]

_LEAST = 3e-3  # of a weight: below, its logarithm says more of the rounding than of the score


@dataclass(frozen=True)
class HeadScores:
    """scores (B, H, n) of the rows x_i − x_N (B, n, d); trust (B, H, n): 0 where a weight is lost."""

    rows: Array
    asking: Array
    scores: Array
    trust: Array

    def spread(self) -> float:
        """Of the strongest head."""
        return float(self.scores.std(axis=(0, 2)).max())


def read_scores(block: SequenceBlock, baseline: Baseline, values: Array) -> HeadScores:
    """The weights α of every head are a linear system, Σ_h Σ_i α_i (x_i − x_N)ᵀV_h = y − c − x_NᵀΣV_h."""
    last = block.rows[:, -1]
    rows = block.rows[:, :-1] - last[:, None]
    wanted = block.answers - baseline.c - last @ baseline.v_sum
    B, n, _ = rows.shape
    H = len(values)
    shown = np.einsum("bnd,hdm->bhnm", rows, values, optimize=True).reshape(B, H * n, -1)
    weights = np.einsum("bkm,bm->bk", np.linalg.pinv(shown.transpose(0, 2, 1), rcond=1e-4), wanted).reshape(
        B, H, n
    )
    own = 1.0 - weights.sum(axis=2)
    lost = (weights < _LEAST) | (own < _LEAST)[:, :, None]
    weights, own = np.clip(weights, _LEAST, 1.0), np.clip(own, _LEAST, 1.0)
    trust = np.where(lost, 0.0, np.minimum(weights, own[:, :, None]))
    return HeadScores(rows, with_one(last), np.log(weights / own[:, :, None]), trust)


def matrices_from_scores(measured: HeadScores) -> tuple[Array, list[int]]:
    """([W w0] (H, d, d+1), ranks): weighted least squares of xᵀ[W w0][x_N; 1], and the singular values above
    what the residual makes of zero ones."""
    found, ranks = [], []
    for h in range(measured.scores.shape[1]):
        matrix, error = _least_squares(measured, h)
        values = np.linalg.svd(matrix, compute_uv=False)
        found.append(matrix)
        ranks.append(max(1, int((values > 0.5 * error).sum())))
    return np.array(found), ranks


def _least_squares(measured: HeadScores, h: int) -> tuple[Array, float]:
    """(matrix, largest singular value that errors alone would give)."""
    rows, asking = measured.rows, measured.asking
    trust, scores = measured.trust[:, h], measured.scores[:, h]
    (B, n, d), e = rows.shape, asking.shape[1]

    def forward(x: Array) -> Array:
        pulled = asking @ x.reshape(d, e).T
        return np.asarray(trust * np.einsum("bnd,bd->bn", rows, pulled)).ravel()

    def backward(y: Array) -> Array:
        pulled = np.einsum("bn,bnd->bd", trust * y.reshape(B, n), rows)
        return np.asarray(pulled.T @ asking).ravel()

    operator = LinearOperator((B * n, d * e), matvec=forward, rmatvec=backward, dtype=np.float64)
    solved = lsqr(operator, (trust * scores).ravel(), atol=1e-9, btol=1e-9, iter_lim=600)
    left = float(solved[3])
    freedom = max(int((trust > 0).sum()) - d * e, 1)
    # entry (i, j) is known up to residual / √(Σ trust² x_i² b_j²), and a random matrix of such entries has
    # singular values up to √d + √e times that; half as much again for the spread of the trust
    strength = np.sqrt(float(np.einsum("bn,bnd->", trust**2, rows**2)) / d * float(np.mean(asking**2)))
    error = 1.5 * left / np.sqrt(freedom) / strength * (np.sqrt(d) + np.sqrt(e))
    return np.asarray(solved[0]).reshape(d, e), float(error) * 1.5
