"""Heads that were found inside a limit on rows, finished there: all parameters corrected together on fresh
pairs."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits.joint_vector_heads import JointVectorHeads, VectorStep, vector_step

__all__ = ["MOST_UNKNOWNS", "finish_together", "fresh_step", "pairs_to_finish"]

MOST_UNKNOWNS = 1500  # of a dense least-squares problem: three seconds
_EQUATIONS = 1.6  # for every unknown
_EXTRA = 16  # pairs for few unknowns, where 1.6 times as many leave little to average
_STEPS = 4  # Gauss-Newton squares the error each time: from 1e-2 to rounding
_SETTLED = 1e-13  # relative change of a step: rounding
_OCTAVES = 1.5  # sizes of asking rows, around that at which the usual score is one


def finish_together(
    respond: VectorResponses, model: MultiHead, bound: float | None, rng: np.random.Generator
) -> MultiHead:
    """The same heads after up to four Gauss-Newton steps on one set of pairs; unchanged where they are too
    many."""
    heads = _joint(model)
    if heads.unknowns > MOST_UNKNOWNS:
        return model
    A, B, found = _ask(respond, model, bound, rng)
    for _ in range(_STEPS):
        step = vector_step(heads, A, B, found)
        if not np.isfinite(step.change) or step.change > 0.5:
            return model
        heads = step.heads
        if step.change < _SETTLED:
            break
    return _model(model, heads)


def fresh_step(
    respond: VectorResponses, model: MultiHead, bound: float | None, rng: np.random.Generator
) -> VectorStep | None:
    """What one step on fresh pairs would change; None where the heads are too many."""
    heads = _joint(model)
    if heads.unknowns > MOST_UNKNOWNS:
        return None
    return vector_step(heads, *_ask(respond, model, bound, rng))


def _joint(model: MultiHead) -> JointVectorHeads:
    d = model.width
    biased = any(head.w0 is not None for head in model.heads)
    W = [
        np.column_stack([head.W, np.zeros(d) if head.w0 is None else head.w0]) if biased else head.W
        for head in model.heads
    ]
    return JointVectorHeads(np.array(W), np.array([head.v for head in model.heads]))


def _model(model: MultiHead, heads: JointVectorHeads) -> MultiHead:
    d = model.width
    parts = []
    for old, W, V in zip(model.heads, heads.W, heads.V, strict=True):
        bias = W[:, d] if W.shape[1] > d and old.w0 is not None else None
        matrix: object = W[:, :d]
        if old.rank < d:
            left, values, right = np.linalg.svd(W[:, :d])
            matrix = (left[:, : old.rank] * values[: old.rank], right[: old.rank].T)
        parts.append(SingleHead(matrix, V, bias))
    return MultiHead(parts, model.c)


def pairs_to_finish(unknowns: int, heads: int, width: int, outputs: int) -> int:
    """How many pairs one set has: 1.6 equations an unknown, and as many pairs as V alone needs, whatever m
    is."""
    return int(_EQUATIONS * max(unknowns / outputs, heads * width)) + _EXTRA


def _ask(
    respond: VectorResponses, model: MultiHead, bound: float | None, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """(A, B, responses): pairs whose scores are moderate for one head, each in turn, as far as rows may be
    long."""
    heads, d = model.heads, model.width
    m = len(respond.c)
    joint = _joint(model)
    n = pairs_to_finish(joint.unknowns, len(heads), d, m)
    A, B = (rng.standard_normal((n, d)) for _ in range(2))
    for rows in (A, B):
        rows /= np.linalg.norm(rows, axis=1)[:, None]
    turn = np.arange(n) % len(heads)
    longest = np.inf if bound is None else bound / 2
    natural = np.array([1.0 / np.sqrt(max(head.score_strength(), 1e-300)) for head in heads])[turn]
    B *= np.minimum(natural * 2.0 ** rng.uniform(-_OCTAVES, _OCTAVES, n), longest)[:, None]
    against = np.stack([head.matrix.apply(B) + (0.0 if head.w0 is None else head.w0) for head in heads])
    own = np.abs(np.einsum("nd,hnd->hn", A, against))
    usual = np.median(own, axis=1)[turn]
    wanted = rng.uniform(0.5, 2.0, n) / np.maximum(own[turn, np.arange(n)], 0.3 * usual)
    A *= np.minimum(wanted, longest)[:, None]
    columns = np.column_stack([B, np.ones(n)]) if joint.W.shape[2] > d else B
    return A, columns, respond(A[:, None], B)
