"""Heads so close to each other that one base row shows their readouts but not their matrices.

With the readouts known, Σ_h σ(aᵀW_h b)·(a·v_h) tells all W_h apart even at small scores, because a·v_h
differs from head to head. What is found there allows larger rows, at which the same answers tell more digits:
the rows grow until the heads can be read one by one.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.solvers.head_fits.joint_heads import JointHeads, matrix_step

__all__ = ["MOST_ENTRIES", "approach"]

MOST_ENTRIES = 12_000  # of all matrices: a limit on the time of a step
_SURPLUS = 1.6  # answers for each unknown
_STAGES = 6  # sizes of rows, four times the one before: from the usual to where heads 1e-3 apart differ
_STEPS = 8  # of each stage: a limit on time; a step that changes nothing ends them
_CLOSE = 1e-3  # what a residual may grow to at the next stage
# weight of the rows known against answers: too small to bend what the answers tell, too large to be lost
_TRUST = 1e-3
_ALONE = 40.0  # score of the others where one head alone answers


def approach(
    respond: Responses,
    matrices: list[Array],
    readouts: Array,
    base: Array,
    rows: Array,
    rng: np.random.Generator,
) -> list[Array]:
    """Better matrices from pairs with |a||W||b| = 1 and more, until one head is moderate where the others are
    saturated."""
    heads, size = JointHeads(np.array(matrices), readouts), float(np.linalg.norm(base))
    spread = 1.0
    for _ in range(_STAGES):
        A, B = _pairs(heads, spread, int(_SURPLUS * heads.W.size) + 16, size, respond.biased, rng)
        answers = respond(A, B)
        residual = np.inf
        for _ in range(_STEPS):
            moved, change, before = matrix_step(heads, A, B, answers, base, rows, max(1.0, _TRUST * spread))
            if before >= 0.5 * residual:
                break
            heads, residual = moved, before
            if change * spread < 1e-13:
                break
        allowed = _CLOSE * spread / residual
        if allowed >= _ALONE * np.sqrt(heads.W.shape[1]) / _gap(heads.W) or allowed < 10 * spread:
            break
        spread = allowed
    return list(heads.W)


def _gap(W: Array) -> float:
    """Smallest relative distance between two heads."""
    sizes = np.linalg.norm(W, axis=(1, 2))
    gaps = [
        float(np.linalg.norm(W[h] - W[k]) / max(sizes[h], sizes[k])) for h in range(len(W)) for k in range(h)
    ]
    return min(gaps, default=1.0)


def _pairs(
    heads: JointHeads, spread: float, n: int, size: float, biased: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Random pairs with |R_h||b| about `spread` and a moderate score of head h = W_hᵀa, each head in turn."""
    H, d, columns = heads.W.shape
    A = rng.standard_normal((n, d))
    A *= size / np.linalg.norm(A, axis=1)[:, None]
    turn = np.arange(n) % H
    own = np.empty((n, columns))
    for h in range(H):
        own[turn == h] = A[turn == h] @ heads.W[h]
    length = np.linalg.norm(own, axis=1)
    B = rng.standard_normal((n, columns))
    if biased:
        B[:, -1] += np.where(B[:, -1] >= 0, 0.5, -0.5)
    B -= (np.einsum("qc,qc->q", B, own) / length**2)[:, None] * own
    B *= (spread * rng.uniform(0.5, 1.5, n) / (length * np.linalg.norm(B, axis=1)))[:, None]
    return A, B + (rng.uniform(-2.0, 2.0, n) / length**2)[:, None] * own
