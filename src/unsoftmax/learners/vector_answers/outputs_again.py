"""The heads' outputs again, better: with the scores known, one head alone can be switched on for any row."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.vector_answers.plateau_rows import Separation
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.meters.several_heads.isolating_rows import Isolation

__all__ = ["polished_separation"]

_SIZE = 2.0**20  # of first rows: answers far above any constant
_MARGIN = 200.0  # score of the heads that are off: e^-200 of an answer is nothing


def polished_separation(
    respond: VectorResponses,
    separation: Separation,
    matrices: list[Array],
    biases: list[Array],
    rng: np.random.Generator,
) -> Separation:
    """T_h from V_hᵀa measured for as many random rows a as the largest head has outputs: r(H - 1) queries."""
    H, d = len(matrices), respond.width
    if H < 2:
        raise Restart("the plateaus show one head, and one head does not explain the answers")
    most = max(block.shape[1] for block in separation.blocks)
    bound = respond.asker.input_bound
    size = _SIZE if bound is None else bound / 8
    rows = np.linalg.qr(rng.standard_normal((d, most)))[0].T * size
    biased = any(
        float(np.linalg.norm(w0)) > 1e-12 * float(np.linalg.norm(W))
        for W, w0 in zip(matrices, biases, strict=True)
    )
    joint = [np.column_stack([W, w0]) if biased else W for W, w0 in zip(matrices, biases, strict=True)]
    firsts, asking, factors = [], [], []
    for a in rows:
        R = np.array([a @ matrix for matrix in joint])
        balance = float(np.sqrt(np.mean(R[:, -1] ** 2) / np.mean(R[:, :-1] ** 2))) if biased else 1.0
        R = R / np.append(np.ones(d), balance) if biased else R
        isolation = Isolation(R, respond.rounding, biased=biased)
        for h in range(H - 1):
            b = isolation.only(h, rng) * (_MARGIN / 50.0)
            kappa = b[-1] / balance if biased else 1.0
            firsts.append(kappa * a)
            asking.append(b[:-1] / kappa if biased else b)
            factors.append(kappa)
    found = respond(np.array(firsts)[:, None], np.array(asking)) / np.array(factors)[:, None]
    parts = found.reshape(len(rows), H - 1, -1)
    parts = np.concatenate([parts, (rows @ respond.V)[:, None] - parts.sum(axis=1, keepdims=True)], axis=1)
    blocks = []
    for h, block in enumerate(separation.blocks):
        right = np.linalg.svd(parts[:, h], full_matrices=False)[2]
        blocks.append(right[: block.shape[1]].T)
    return Separation(blocks)
