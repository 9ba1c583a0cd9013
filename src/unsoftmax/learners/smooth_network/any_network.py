"""Networks behind single rows whose activation is unknown: with kinks, smooth, or gated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unsoftmax.answers.cast_rows import cast_format
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.learners.base import Known, Learned, Learner
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.computed_network.learner import ComputedNetworkLearner
from unsoftmax.learners.deep_stack.learner import DeepStackLearner
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.learners.relu_network.row_tests import ShortAnswers, one_row_function
from unsoftmax.learners.relu_network.vector_learner import VectorReluLearner
from unsoftmax.learners.smooth_network.learner import GatedNetworkLearner, SmoothNetworkLearner
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["NetworkLearner"]

_LOOKED, _LONG = 16, 8.0  # rows whose last digits show short arithmetic, and their norm


@dataclass(frozen=True)
class NetworkLearner:
    """Recovers a two-layer network with any activation: ReLU, then smooth ones, then gated ones.

    Claim: that of the learner that succeeds; of `ReluNetworkLearner` before. Queries: what those before it
    asked until a test failed, beside its own. Fails when: the function is none of these.
    """

    family: ClassVar[Family] = Family.NETWORK
    kinked: ReluNetworkLearner = field(default_factory=ReluNetworkLearner)

    @property
    def claim(self) -> Claim:
        return self.kinked.claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        scalar = asker.outputs is None
        kinked = self.kinked if scalar else VectorReluLearner(self.kinked)
        stacks = [] if scalar else [DeepStackLearner()]
        order: list[Learner] = [kinked, *stacks, SmoothNetworkLearner(), GatedNetworkLearner()]
        stops: list[OutsideClass | Unresolved] = []
        for learner in order:
            try:
                return learner.learn(asker, known, rng)
            except OutsideClass as stop:
                held = _arithmetic(asker, rng.spawn(1)[0]) if learner is self.kinked else None
                if held is not None:
                    return ComputedNetworkLearner(held).learn(asker, known, rng)
                stops.append(stop)
            except ShortAnswers as stop:
                if scalar:
                    held = _arithmetic(asker, rng.spawn(1)[0]) or FloatFormat.FLOAT32
                    return ComputedNetworkLearner(held).learn(asker, known, rng)
                stops.append(stop)
            except Unresolved as stop:
                if learner is kinked:
                    raise
                stops.append(stop)
        # what one of them could not resolve may be in its class
        raise next((stop for stop in stops if isinstance(stop, Unresolved)), stops[0])


def _arithmetic(asker: Asker, rng: np.random.Generator) -> FloatFormat | None:
    """The coarser of the formats that hold all answers and to which rows are rounded first; None where all
    digits count in both. Long rows reach beyond a region without active neurons."""
    cast = cast_format(asker, rng)
    rows = rng.standard_normal((_LOOKED, asker.width))
    longest = np.inf if asker.input_bound is None else asker.input_bound
    rows *= min(_LONG, longest / float(np.linalg.norm(rows, axis=1).max()))
    answers = np.setdiff1d(one_row_function(asker)(rows), [0.0])
    stored = smallest_format(answers) if len(answers) > 1 else None  # a constant tells nothing
    return next((held for held in FloatFormat if held in (cast, stored)), None)
