"""A second look at heads that one base row shows badly: fresh pairs on their own planes, one linear
correction of W.

A pair (a, b) with a moderate score tells aᵀWb to a rounding that is relative to |a||W||b|, however close the
heads are to each other. Differences at one base row lose digits where the rows R_h are ill conditioned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, expit, logit
from unsoftmax.late_scipy import LinearOperator, lsqr
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.isolating_pairs import (
    PairSizes,
    isolating_pairs,
    moderate_pairs,
    saturating_pairs,
    switching_pairs,
)
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits.joint_heads import JointHeads, scale_step

__all__ = [
    "correct_directions",
    "correct_matrix",
    "correct_readouts",
    "correct_scales",
    "matrix_error",
    "parameter_error",
    "readout_error",
]

_SURPLUS = 1.35  # measurements for each unknown
_SATURATED = 34.0  # score from which on a head is on or off to about 1e-15
_PROBES = 12  # their root mean square is known to a fifth
_SCALE_PROBES = 4  # a head, beside 8: one unknown each


def matrix_error(
    respond: Responses,
    matrices: list[Array],
    readouts: Array,
    head: int,
    size: float,
    rng: np.random.Generator,
) -> float:
    """Relative error of one matrix, its scale apart, as far as a few fresh pairs show it; infinite when the
    head does not answer as predicted."""
    sizes = PairSizes(size, _SATURATED, respond.biased)
    A, B = isolating_pairs(matrices, head, readouts[head], _PROBES, rng, sizes)
    missing, good = _missing(respond, matrices, readouts, head, A, B)
    if good.sum() < _PROBES / 2:
        return np.inf
    sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    return float(
        np.sqrt(np.mean((missing[good] / sizes[good]) ** 2))
        * np.sqrt(matrices[head].size)
        / np.linalg.norm(matrices[head])
    )


def correct_scales(
    respond: Responses, matrices: list[Array], readouts: Array, size: float, rng: np.random.Generator
) -> tuple[list[Array], float]:
    """(matrices, error before): the scales of all heads together, on short pairs; pairs on a head's own plane
    hardly show its scale."""
    A, B = moderate_pairs(matrices, _SCALE_PROBES * len(matrices) + 8, rng, size=size, biased=respond.biased)
    known = JointHeads(np.array(matrices), readouts)
    scales, doubt = scale_step(matrices, readouts, A, B, respond(A, B) - known.predict(A, B, 0.0))
    sure = (np.abs(scales) < 0.1) & (doubt < 0.3 * np.abs(scales))
    moved = [
        matrix * (1.0 + scale) for matrix, scale in zip(matrices, np.where(sure, scales, 0.0), strict=True)
    ]
    return moved, float((np.abs(scales) + doubt).max())


def correct_directions(
    respond: Responses,
    matrices: list[Array],
    readouts: Array,
    head: int,
    sides: tuple[Array, Array],
    size: float,
    rng: np.random.Generator,
) -> Array | None:
    """The head's matrix after a correction left·X·rightᵀ, where one base row shows least: along the rows that
    held the heads apart.

    sides: left, a basis of W's columns (d, r), and right, a few directions of b (n, k). Costs 1.5 rk queries,
    far less than all of W.
    """
    W, (left, right) = matrices[head], sides
    r, k = left.shape[1], right.shape[1]
    A, B = isolating_pairs(
        matrices, head, readouts[head], int(1.5 * r * k) + 8, rng, PairSizes(size, _SATURATED, respond.biased)
    )
    forms, good = _missing(respond, matrices, readouts, head, A, B)
    if good.sum() < 1.1 * r * k:
        return None
    weights = (np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1))[good]
    design = ((A[good] @ left)[:, :, None] * (B[good] @ right)[:, None]).reshape(-1, r * k) / weights[:, None]
    found = np.linalg.lstsq(design, forms[good] / weights, rcond=None)[0].reshape(r, k)
    return np.asarray(W + left @ found @ right.T)


def correct_matrix(
    respond: Responses,
    matrices: list[Array],
    readouts: Array,
    head: int,
    rank: int | None,
    size: float,
    rng: np.random.Generator,
) -> Array | None:
    """The head's matrix after one linear correction, at its rank; None when too few fresh pairs are read."""
    W = matrices[head]
    d, n = W.shape
    r = min(d, n) if rank is None else rank
    unknowns = r * (d + n - r)
    count = int(_SURPLUS * unknowns) + 8
    sizes = PairSizes(size, _SATURATED, respond.biased)
    A, B = isolating_pairs(matrices, head, readouts[head], count, rng, sizes)
    forms, good = _missing(respond, matrices, readouts, head, A, B)
    weights = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    if good.sum() < 1.1 * unknowns:
        return None
    A, B, forms = A[good] / weights[good, None], B[good], forms[good] / weights[good]
    precision = max(1e-10, 1e4 * respond.rounding)
    if r == min(d, n):
        operator = LinearOperator(
            (len(A), d * n),
            matvec=lambda x: np.einsum("qi,qi->q", A @ x.reshape(d, n), B),
            rmatvec=lambda y: ((A * y[:, None]).T @ B).ravel(),
            dtype=np.float64,
        )
        return np.asarray(
            W + lsqr(operator, forms, atol=precision, btol=precision, iter_lim=150)[0].reshape(d, n)
        )
    U, _, Vt = np.linalg.svd(W, full_matrices=False)
    U, V = U[:, :r], Vt[:r].T
    AU, BV = A @ U, B @ V
    tangent = LinearOperator(
        (len(A), r * n + d * r),
        matvec=lambda x: _tangent(x, A, B, AU, BV, r),
        rmatvec=lambda y: np.concatenate(
            [((AU * y[:, None]).T @ B).ravel(), ((A * y[:, None]).T @ BV).ravel()]
        ),
        dtype=np.float64,
    )
    found = lsqr(tangent, forms, atol=precision, btol=precision, iter_lim=150)[0]
    moved = W + U @ found[: r * n].reshape(r, n) + found[r * n :].reshape(d, r) @ V.T
    left, values, right = np.linalg.svd(moved, full_matrices=False)
    return np.asarray((left[:, :r] * values[:r]) @ right[:r])


def readout_error(
    respond: Responses, matrices: list[Array], readouts: Array, size: float, rng: np.random.Generator
) -> float:
    """Error of the readouts against the smallest of them, on pairs where every head is on or off."""
    _, residual = _saturated(respond, matrices, readouts, _PROBES, size, rng)
    return float(
        np.sqrt(np.mean(residual**2)) / size * np.sqrt(respond.width) / np.linalg.norm(readouts, axis=1).min()
    )


def correct_readouts(
    respond: Responses, matrices: list[Array], readouts: Array, size: float, rng: np.random.Generator
) -> Array:
    """All readouts after one linear correction; their sum is known already and is kept."""
    H, d = readouts.shape
    n = int(_SURPLUS * H * d) + 8
    (A, on), residual = _saturated(respond, matrices, readouts, n, size, rng)
    operator = LinearOperator(
        (n, H * d),
        matvec=lambda x: np.einsum("qh,qh->q", A @ x.reshape(H, d).T, on),
        rmatvec=lambda y: ((on * y[:, None]).T @ A).ravel(),
        dtype=np.float64,
    )
    return np.asarray(
        readouts + lsqr(operator, residual, atol=1e-9, btol=1e-9, iter_lim=150)[0].reshape(H, d)
    )


def parameter_error(respond: Responses, model: MultiHead, rng: np.random.Generator) -> float:
    """A bound on the relative error of all parameters, six times what fresh pairs show; for answers that
    carry errors."""
    d = respond.width
    heads = [head for head in model.heads if head.scores_anything]
    matrices = [
        np.column_stack([head.W, _bias(head) / respond.unit]) if respond.biased else head.W for head in heads
    ]
    readouts = np.array([head.v for head in heads])
    size = 2.0**16 if respond.ledger.input_bound is None else respond.ledger.input_bound / 8
    errors = [matrix_error(respond, matrices, readouts, h, size, rng) for h in range(len(heads))]
    errors.append(correct_scales(respond, matrices, readouts, size, rng)[1])
    alone = 2.0**6 * rng.standard_normal((_PROBES, 1, d))
    wrong = np.abs(respond.ledger.ask(alone) - model(alone)).max() / 2.0**6
    return float(
        6
        * max(
            *errors,
            readout_error(respond, matrices, readouts, size, rng),
            wrong / np.linalg.norm(readouts, axis=1).min(),
        )
    )


def _bias(head: SingleHead) -> Array:
    return np.zeros(head.width) if head.w0 is None else head.w0


def _tangent(x: Array, A: Array, B: Array, AU: Array, BV: Array, r: int) -> Array:
    n = B.shape[1]
    inner = np.einsum("qc,qc->q", AU @ x[: r * n].reshape(r, n), B)
    return np.asarray(inner + np.einsum("qr,qr->q", A @ x[r * n :].reshape(-1, r), BV))


def _saturated(
    respond: Responses, matrices: list[Array], readouts: Array, n: int, size: float, rng: np.random.Generator
) -> tuple[tuple[Array, Array], Array]:
    A, B = _on_or_off(matrices, readouts, n, size, respond.biased, rng)
    on = np.column_stack([expit(np.einsum("qi,qi->q", A @ matrix, B)) for matrix in matrices])
    return (A, on), respond(A, B) - np.einsum("qh,qh->q", A @ readouts.T, on)


def _on_or_off(
    matrices: list[Array], readouts: Array, n: int, size: float, biased: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Half of the pairs with any heads on; in the others one head is on and its neighbour off, or the
    reverse, each head in turn."""
    share = -(-n // (2 * len(matrices)))
    sizes = PairSizes(size, _SATURATED + 6, biased)
    parts = [saturating_pairs(matrices, max(n - share * len(matrices), 1), rng, sizes)]
    parts += [switching_pairs(matrices, head, v, share, rng, sizes) for head, v in enumerate(readouts)]
    return np.concatenate([part[0] for part in parts])[:n], np.concatenate([part[1] for part in parts])[:n]


def _missing(
    respond: Responses, matrices: list[Array], readouts: Array, head: int, A: Array, B: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """(aᵀEb, readable) with E what is missing from the head's matrix."""
    scores = np.array([np.einsum("qi,qi->q", A @ matrix, B) for matrix in matrices])
    others = [k for k in range(len(matrices)) if k != head]
    background = np.einsum("kq,kq->q", expit(scores[others]), readouts[others] @ A.T) if others else 0.0
    weight = (respond(A, B) - background) / (A @ readouts[head])
    good = (weight > 2e-3) & (weight < 1 - 2e-3)
    return np.where(good, logit(np.clip(weight, 1e-3, 1 - 1e-3)) - scores[head], 0.0), good
