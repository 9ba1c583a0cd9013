"""How wrong can heads be that no asking row holds apart? All parameters are corrected once more, on fresh
queries: by how much is the bound."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.learners.several_heads.by_copies import MOST_UNKNOWNS, ask_fresh_pairs, draw_fresh_pairs
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.models import MultiHead
from unsoftmax.solvers.head_fits.joint_heads import JointHeads, joint_step, joint_uncertainty

__all__ = ["beside_bias", "joint_error_bound", "left_open_by_heads"]

_FACTOR = 6.0  # of the step: its own error, and chance
_FLOOR = 16 * EPS  # rounding of the comparison itself
_BASE = 2.0**16  # norm of rows where nothing bounds them: every usual head is saturated there
_MOST_FOR_DOUBT = 1000  # unknowns whose uncertainty is worked out: a second of algebra


def joint_error_bound(asker: Asker, model: MultiHead, rng: np.random.Generator) -> float | None:
    """Six times the relative change of the worst head in one least-squares step on 1.6 fresh queries a
    parameter; None for large models."""
    joint = _joint(asker, model)
    if joint is None:
        return None
    heads, respond, size = joint
    with asker.phase(VERIFICATION):
        A, B, shifts, answers = ask_fresh_pairs(respond, heads, size, rng)
        zero = np.zeros((1, 1, model.width))
        constant = float(np.abs(asker.ask(zero) - model(zero)).max()) / max(
            float(np.linalg.norm(model.v)), float(np.max(np.abs(model.c))), 1e-300
        )
    change = joint_step(heads, A, B, shifts, answers)[1]
    doubt = joint_uncertainty(heads, A, B, shifts, answers) if heads.unknowns <= _MOST_FOR_DOUBT else 0.0
    return float(_FACTOR * max(change, doubt) * beside_bias(model) + constant) + _FLOOR


def left_open_by_heads(asker: Asker, model: MultiHead) -> float:
    """The relative error of the parameters that answers with the last digit wrong leave open, on pairs whose
    rows may be sent; 0 for large models. Heads of one column, and short rows, hardly differ. Asks nothing."""
    joint = _joint(asker, model)
    if joint is None or joint[0].unknowns > _MOST_FOR_DOUBT:
        return 0.0
    heads, respond, size = joint
    A, B, shifts = draw_fresh_pairs(respond, heads, size, np.random.default_rng(0))
    doubt = joint_uncertainty(heads, A, B, shifts, heads.predict(A, B, shifts))
    return float(doubt * beside_bias(model))


def _joint(asker: Asker, model: MultiHead) -> tuple[JointHeads, Responses, float] | None:
    """All parameters side by side, how pairs are asked, and how long their first rows are; None for large
    models."""
    d = model.width
    biased = any(head.w0 is not None for head in model.heads)
    if len(model.heads) * d * (d + biased + 1) > MOST_UNKNOWNS:
        return None
    W = [
        np.column_stack([head.W, np.zeros(d) if head.w0 is None else head.w0]) if biased else head.W
        for head in model.heads
    ]
    c = float(np.max(model.c)) if np.ndim(model.c) else float(np.asarray(model.c))
    size = _BASE if asker.input_bound is None else asker.input_bound / 8
    heads = JointHeads(np.array(W), np.array([head.v for head in model.heads]))
    return heads, Responses(asker, model.v, c, biased=biased), size


def beside_bias(model: MultiHead) -> float:
    """The largest size of a head's [W w0] against W alone: an error that is relative to both is larger by so
    much against W."""
    sizes = [
        (head.matrix.norm(), 0.0 if head.w0 is None else float(np.linalg.norm(head.w0)))
        for head in model.heads
    ]
    return max((float(np.hypot(1.0, bias / W)) for W, bias in sizes if W > 0.0), default=1.0)
