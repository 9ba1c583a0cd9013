"""Which family is it? The cheap tests of each class decide, in order of price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.answers.identify import BENDS
from unsoftmax.errors import UsageError
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.one_head.checks import CONSTANT_TEST, ONE_ROW_TEST, SOFTMAX_TEST
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.readout import read_constant
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.learners.several_heads import MultiHeadLearner
from unsoftmax.learners.transformer import TransformerLearner
from unsoftmax.learners.vector_answers import VectorOutputsLearner
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.meters.one_head.exact import SIGMOID_TEST
from unsoftmax.outcomes import OutsideClass

__all__ = ["FAMILIES", "AutoLearner", "learner_for"]

FAMILIES = ("auto", "single-head", "multi-head", "transformer", "relu-network")
_SUCCESSORS: dict[str, Callable[[], Learner]] = {  # a test that failed -> the class to try instead
    SIGMOID_TEST: MultiHeadLearner,
    SOFTMAX_TEST: MultiHeadLearner,
    CONSTANT_TEST: MultiHeadLearner,
    ONE_ROW_TEST: TransformerLearner,
}
_ODD = 1e-6  # of the answers: an affine function is never off by so much
_REPEATED = 1e-12  # of the answers: how far they may be off when asked again


@dataclass(frozen=True)
class AutoLearner:
    """Tries the known classes, cheapest first; a class is left as soon as one of its tests fails.

    What is already paid for (`Ledger.known`) is not asked again by the next class.
    """

    family: ClassVar[str] = "auto"

    @property
    def claim(self) -> Claim:
        return SingleHeadLearner().claim

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        if ledger.outputs is not None:
            return VectorOutputsLearner().learn(ledger, rng)
        alone = ledger.oracle.spec.max_length == 1  # single rows only: there is no attention to see
        learner: Learner = ReluNetworkLearner() if alone else SingleHeadLearner()
        untried = dict(_SUCCESSORS)
        if not alone and (BENDS in ledger.known or _plainly_not_affine(ledger)):
            learner = untried.pop(ONE_ROW_TEST)()
        while True:
            try:
                return learner.learn(ledger, rng)
            except OutsideClass as refuted:
                successor = untried.pop(refuted.test, None)
                if successor is None:
                    raise
                learner = successor()


def _plainly_not_affine(ledger: Ledger) -> bool:
    """Whether a row and its negative, of which one was asked before, are answered otherwise than affinely;
    seen before a readout is paid for."""
    row, before = next(
        ((sequence, float(answer)) for sequence, answer in ledger.witnesses if len(sequence) == 1),
        (None, 0.0),
    )
    if row is None:
        return False
    c = read_constant(ledger)
    with ledger.phase(VERIFICATION):
        opposite = float(ledger.ask(-row[None])[0])
        size = abs(c) + abs(before) + abs(opposite)
        if abs(before + opposite - 2.0 * c) <= _ODD * size:
            return False
        return abs(float(ledger.ask(row[None])[0]) - before) <= _REPEATED * size


def learner_for(family: str) -> Learner:
    """The default learner of a family.

    >>> learner_for("single-head").family
    'single-head'
    """
    if family == "auto":
        return AutoLearner()
    if family == "single-head":
        return SingleHeadLearner()
    if family == "transformer":
        return TransformerLearner()
    if family == "relu-network":
        return ReluNetworkLearner()
    if family == "multi-head":
        return MultiHeadLearner()
    raise UsageError(f"there is no family {family!r}; choose one of {', '.join(FAMILIES)}")
