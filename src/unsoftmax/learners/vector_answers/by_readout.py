"""When the heads' outputs overlap: one weighted sum of them is learnt as a scalar oracle, then all of V with
the scores known."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from unsoftmax.learners.base import Known
from unsoftmax.learners.several_heads.learner import MultiHeadLearner
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.meters.several_heads.isolating_pairs import saturating_pairs
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import Unresolved

__all__ = ["learn_by_readout"]

_SURPLUS = 1.2
_SIZE = 2.0**16
_SILENCE = 40.0
_MOST_UNKNOWNS = 6000


def learn_by_readout(
    respond: VectorResponses, learner: MultiHeadLearner, rng: np.random.Generator
) -> MultiHead:
    """All heads through a random readout, then V_h from 1.2·H·d pairs at which every head is on or off."""
    asker, d = respond.asker, respond.width
    weights = rng.standard_normal(len(respond.c))
    view = asker.read(weights / np.linalg.norm(weights))
    learned = learner.learn(view, Known(), rng).model
    assert isinstance(learned, MultiHead)
    heads = learned.heads
    flat = [head for head in heads if head.matrix.norm() == 0.0 and head.w0 is None]
    scored = [head for head in heads if head not in flat]
    H = len(scored)
    if H * d > _MOST_UNKNOWNS:
        raise Unresolved(
            f"the readouts of {H} heads of width {d} are too many to solve for at once ({H * d} unknowns, "
            f"at most {_MOST_UNKNOWNS})"
        )
    biased = any(head.w0 is not None for head in scored)
    matrices = [
        np.column_stack([head.W, np.zeros(d) if head.w0 is None else head.w0]) if biased else head.W
        for head in scored
    ]
    bound = asker.input_bound
    A, B = saturating_pairs(
        matrices,
        int(_SURPLUS * H * d) + 8,
        rng,
        size=_SIZE if bound is None else bound / 8,
        silence=_SILENCE,
        biased=biased,
    )
    kappa = B[:, -1:] if biased else np.ones((len(B), 1))
    asking = B[:, :-1] / kappa if biased else B
    on = np.column_stack([expit(np.einsum("qi,qi->q", A @ matrix, B)) for matrix in matrices])
    with asker.phase("outputs"):
        found = respond((kappa * A)[:, None], asking) / kappa
    if flat:  # a head that always takes half: its part is half of what the others leave of the whole
        found = found - 0.5 * A @ respond.V
        on = on - 0.5
    design = (on[:, :, None] * A[:, None]).reshape(len(A), H * d)
    V = np.linalg.lstsq(design, found, rcond=None)[0].reshape(H, d, -1)
    parts = [SingleHead(head.matrix, V[h], head.w0) for h, head in enumerate(scored)]
    if flat:
        parts.append(SingleHead(np.zeros((d, d)), respond.V - V.sum(axis=0)))
    return MultiHead(parts, respond.c)
