"""Networks behind single rows whose activation is unknown: with kinks, smooth, or gated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned, Learner
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.computed_network.learner import ComputedNetworkLearner
from unsoftmax.learners.deep_stack.learner import DeepStackLearner
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.learners.relu_network.row_tests import ShortAnswers
from unsoftmax.learners.smooth_network.learner import GatedNetworkLearner, SmoothNetworkLearner
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["NetworkLearner"]


@dataclass(frozen=True)
class NetworkLearner:
    """Recovers a two-layer network with any activation: ReLU for single numbers, then smooth ones, then gated
    ones.

    Claim: that of the learner that succeeds; of `ReluNetworkLearner` before. Queries: what those before it
    asked until a test failed, beside its own. Fails when: the network has kinks and vector answers, or is
    none.
    """

    family: ClassVar[Family] = Family.NETWORK
    kinked: ReluNetworkLearner = field(default_factory=ReluNetworkLearner)

    @property
    def claim(self) -> Claim:
        return self.kinked.claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        order: list[Learner] = [SmoothNetworkLearner(), GatedNetworkLearner()]
        order.insert(0, self.kinked if asker.outputs is None else DeepStackLearner())
        stops: list[OutsideClass | Unresolved] = []
        for learner in order:
            try:
                return learner.learn(asker, known, rng)
            except OutsideClass as stop:
                stops.append(stop)
            except ShortAnswers:
                return ComputedNetworkLearner().learn(asker, known, rng)
            except Unresolved as stop:
                if learner is self.kinked:
                    raise
                stops.append(stop)
        raise stops[0]
