"""How wrong can the parameters behind vector answers be? Random readouts turn them into scalar ones, whose
bounds hold."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.certify.joint_bound import beside_bias, joint_error_bound
from unsoftmax.certify.multi_head_bound import multi_head_error_bound
from unsoftmax.certify.single_head_bound import single_head_error_bound
from unsoftmax.learners.vector_answers.finish import fresh_step
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import MultiHead, SingleHead

__all__ = ["vector_error_bound"]

# random ones through which vector answers are compared: one alone may be nearly blind to an error
_READOUTS = 3
_FACTOR = 6.0  # as for scalar answers


def vector_error_bound(asker: Asker, model: SingleHead | MultiHead, rng: np.random.Generator) -> float | None:
    """The largest bound over three random readouts: an error of V or W shows in a random weighted sum of the
    answers with its full size."""
    if isinstance(model, MultiHead) and asker.input_bound is not None:
        found = _joint_bound(asker, model, rng)
        if found is not None and found > model.exact_at:  # copies of rows tell heads apart that lie close
            found = min(found, _with_copies(asker, model, rng))
        return found
    worst = 0.0
    for _ in range(_READOUTS if asker.input_bound is None else 1):  # bounded rows make each of them dear
        weights = rng.standard_normal(model.outputs or 1)
        weights /= np.linalg.norm(weights)
        view = asker.read(weights)
        if isinstance(model, SingleHead):
            bound: float | None = single_head_error_bound(view, _weighed(model, weights, model.c), rng)
        else:
            bound = multi_head_error_bound(view, _all_weighed(model, weights), rng)
        if bound is None:
            return None
        worst = max(worst, bound)
    return worst


def _joint_bound(asker: Asker, model: MultiHead, rng: np.random.Generator) -> float | None:
    """Six times what a step over all parameters would change on fresh pairs, or leaves in doubt; None for
    large models."""
    d = model.width
    V = np.sum([head.v for head in model.heads], axis=0)
    respond = VectorResponses(asker, V, np.broadcast_to(model.c, V.shape[1]), EPS)
    with asker.phase(VERIFICATION):
        step = fresh_step(respond, model, asker.input_bound, rng)
        origin = np.zeros((1, 1, d))
        constant = float(np.abs(asker.ask(origin) - model(origin)).max())
    if step is None:
        return None
    faintest = min(float(np.linalg.norm(head.v)) for head in model.heads)
    off = constant / max(faintest, float(np.max(np.abs(model.c))), 1e-300)
    return float(_FACTOR * max(step.change, step.doubt) * beside_bias(model) + off) + 16 * EPS


def _with_copies(asker: Asker, model: MultiHead, rng: np.random.Generator) -> float:
    """The largest joint bound over three random readouts; infinite where there is none."""
    worst = 0.0
    for _ in range(_READOUTS):
        weights = rng.standard_normal(model.outputs or 1)
        weights /= np.linalg.norm(weights)
        bound = joint_error_bound(asker.read(weights), _all_weighed(model, weights), rng)
        worst = max(worst, np.inf if bound is None else bound)
    return worst


def _all_weighed(model: MultiHead, weights: Array) -> MultiHead:
    constant = float(np.asarray(model.c) @ weights) if np.ndim(model.c) else 0.0
    return MultiHead([_weighed(head, weights) for head in model.heads], constant)


def _weighed(head: SingleHead, weights: Array, c: float | Array = 0.0) -> SingleHead:
    constant = float(np.asarray(c) @ weights) if np.ndim(c) else float(np.asarray(c)) * float(weights.sum())
    return SingleHead(head.matrix, head.v @ weights, head.w0, constant)
