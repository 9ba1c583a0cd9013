"""When the heads' outputs overlap: one weighted sum of them is learnt as a scalar oracle, then all of V with
the scores known."""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.base import Known
from unsoftmax.learners.several_heads.learner import MultiHeadLearner
from unsoftmax.learners.vector_answers.finish import finish_together
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.learners.vector_answers.values_of_heads import values_of_heads
from unsoftmax.models import MultiHead

__all__ = ["learn_by_readout"]


def learn_by_readout(
    respond: VectorResponses, learner: MultiHeadLearner, rng: np.random.Generator
) -> MultiHead:
    """All heads through a random readout, then V_h from pairs at which their scores are known."""
    asker = respond.asker
    weights = rng.standard_normal(len(respond.c))
    view = asker.read(weights / np.linalg.norm(weights))
    learned = learner.learn(view, Known(), rng).model
    assert isinstance(learned, MultiHead)
    with asker.phase("outputs"):
        model = values_of_heads(respond, learned.heads, asker.input_bound, rng)
        return finish_together(respond, model, asker.input_bound, rng)
