"""How wrong can the parameters of a single head be? Measured on fresh random probes, not assumed."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.probes.sizes import choose_scales
from unsoftmax.models import SingleHead

__all__ = ["single_head_error_bound", "single_head_rounding_limit"]

_PROBES = 16  # fresh pairs, and so many rows for v
# 16 probes whose root mean square is 6 times below its expectation: less likely than 1e-5, even for errors of
# rank one
_FACTOR = 6.0
_FLOOR = 16 * EPS  # no float64 parameter is better known than that


def single_head_error_bound(asker: Asker, head: SingleHead, rng: np.random.Generator) -> float:
    """A bound on the relative error of W, v (and of w0 and c against them), from 33 fresh queries (49 with a
    query bias).

    For random unit x and y, the mean square of (xᵀEy)·d is |E|² for every error matrix E, so a few such forms
    bound |E|, whatever its shape. The answers' own rounding is in the measured forms, so it is in the bound.
    """
    d = head.width
    w_norm, v_norm = head.matrix.norm(), float(np.linalg.norm(head.v))
    with asker.phase(VERIFICATION):
        v_error, c_error = _value_errors(asker, head, rng)
        v_bound = _FACTOR * v_error * np.sqrt(d) / v_norm
        constant = float(np.max(np.abs(head.c)))
        gamma, beta = _scales(head, asker.input_bound)
        x, y = (_units(rng, d) for _ in range(2))
        forms = _form_errors(asker, head, gamma * x, beta * y) / beta
        w_bound = _FACTOR * rms(forms) * d / (w_norm if w_norm > 0 else 1.0)
        b_bound = 0.0
        if head.w0 is not None and head.w0.any():
            b_norm = float(np.linalg.norm(head.w0))
            alone = _form_errors(
                asker, head, _quiet_size(asker, np.sqrt(d) / b_norm) * _units(rng, d), np.zeros((_PROBES, d))
            )
            b_bound = _FACTOR * rms(alone) * np.sqrt(d) / max(b_norm, w_norm)
    c_bound = c_error / max(constant, v_norm)
    return float(max(w_bound, b_bound, v_bound, c_bound)) + float(v_bound) + _FLOOR


def single_head_rounding_limit(head: SingleHead, input_bound: float | None) -> float:
    """The relative error of W and w0 that float64 rounding alone explains: large when rows must be short, or
    a constant drowns the scores."""
    d = head.width
    constant = float(np.max(np.abs(head.c))) * np.sqrt(d) / float(np.linalg.norm(head.v))
    gamma, beta = _scales(head, input_bound)
    limit = (1.0 + (beta + constant) / gamma) / (gamma * beta) * d / (head.matrix.norm() or 1.0)
    if head.w0 is not None and head.w0.any():
        longest = np.sqrt(d) / float(np.linalg.norm(head.w0))
        gamma = longest if input_bound is None else min(longest, input_bound)
        limit = max(limit, (1.0 + constant / gamma) * longest / gamma)
    return float(_FLOOR * limit)


def _scales(head: SingleHead, input_bound: float | None) -> tuple[float, float]:
    d = head.width
    return choose_scales(
        head.matrix.norm() / d,
        bias=0.0 if head.w0 is None else float(np.linalg.norm(head.w0)) / np.sqrt(d),
        constant=float(np.max(np.abs(head.c))),
        readout=float(np.linalg.norm(head.v)) / np.sqrt(d),
        bound=input_bound,
    )


def _quiet_size(asker: Asker, size: float) -> float:
    return size if asker.input_bound is None else min(size, asker.input_bound)


def _value_errors(asker: Asker, head: SingleHead, rng: np.random.Generator) -> tuple[float, float]:
    """Root mean square of x·(error of v) for unit x, and the error of c."""
    v_norm = float(np.linalg.norm(head.v))
    constant = float(np.max(np.abs(head.c)))
    size = _quiet_size(asker, max(1.0, 2.0**10 * constant / v_norm))
    rows = size * _units(rng, head.width)[:, None]
    answers = asker.ask(rows)
    errors = _visible(answers, answers - head(rows)) / size
    zero = np.zeros((1, 1, head.width))
    return rms(errors), float(np.abs(asker.ask(zero) - head(zero)).max())


def _form_errors(asker: Asker, head: SingleHead, A: Array, B: Array) -> Array:
    """xᵀ(error of the score vector) for unit x, where a = |a| x: the answer's deviation through the sigmoid's
    slope."""
    signs = np.where(A @ head.v < 0, -1.0, 1.0)
    size = np.linalg.norm(A, axis=1)
    direction = head.v / np.linalg.norm(head.v)
    unseen = np.abs(A @ direction) < 0.5 * size / np.sqrt(head.width)
    A = A + (unseen * signs * 0.5 * size / np.sqrt(head.width))[:, None] * direction
    if asker.input_bound is not None:
        A = (
            A
            * np.minimum(1.0, (asker.input_bound - np.linalg.norm(B, axis=1)) / np.linalg.norm(A, axis=1))[
                :, None
            ]
        )
    batch = np.stack([A + B, B], axis=1)
    scores = head.scores(batch)
    score = np.clip(scores[:, 0] - scores[:, 1], -30.0, 30.0)
    slope = (A @ head.v) / (2.0 + 2.0 * np.cosh(score))
    answers = asker.ask(batch)
    return np.asarray(_visible(answers, answers - head(batch)) / np.abs(slope) / np.linalg.norm(A, axis=1))


def _visible(answers: Array, deviations: Array) -> Array:
    """Sizes of deviations, none below the last digit of the answer: smaller ones cannot be seen."""
    return np.asarray(np.abs(deviations) + EPS * np.abs(answers))


def _units(rng: np.random.Generator, width: int) -> Array:
    rows = rng.standard_normal((_PROBES, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])
