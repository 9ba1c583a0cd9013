"""A learner cannot grade itself: whatever it says of a wrong model, the recovery does not succeed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import ANSWERS, hard_head
from unsoftmax import (
    Claim,
    Known,
    Learned,
    Model,
    MultiHead,
    SingleHead,
    SingleHeadLearner,
    Status,
    as_oracle,
)
from unsoftmax.families import Family
from unsoftmax.ledger import Asker

TRUTH = hard_head(4, seed=1)
WRONG: dict[str, Model] = {
    "another head": hard_head(4, seed=2),
    "twice the scores": SingleHead(2.0 * TRUTH.W, TRUTH.v),
    "another readout": SingleHead(TRUTH.W, -TRUTH.v),
    "two heads": MultiHead([hard_head(4, seed=3), hard_head(4, seed=4)]),
}
OPINIONS: list[dict[str, float | None]] = [
    {"error_bound": own, "bound_at_least": least, "constant_bound": constant, "within": within, "v_bound": v}
    for own, least, constant, within, v in itertools.product(
        (None, 1e-15, 0.09, np.inf), (0.0, 0.09, np.inf), (None, 1e9), (None, 1e-9), (None, 1e-15)
    )
]


@dataclass(frozen=True)
class Opinionated:
    """Asks nothing, and says what it likes."""

    model: Model
    opinion: dict[str, float | None] = field(default_factory=dict)
    family: ClassVar[Family] = SingleHeadLearner().family

    @property
    def claim(self) -> Claim:
        return SingleHeadLearner().claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        return Learned(self.model, self.claim, **self.opinion)  # type: ignore[arg-type]


KINDS = ("exact", "tolerance", "noise", "rounded to 2 decimals", "float32", "labels")
# no divisor of the number of opinions: every value of every part of one is among those that are tried
SOME, FEW = 7, 19


@pytest.mark.parametrize("answers", KINDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_learner_that_grades_itself_does_not_succeed(wrong: str, answers: str) -> None:
    assert (
        _passed(wrong, answers, OPINIONS[KINDS.index(answers) :: SOME if answers == "exact" else FEW]) == []
    )


@pytest.mark.parametrize("wrong", ["another head", "another readout", "two heads"])
def test_nor_behind_a_tolerance_that_the_user_told(wrong: str) -> None:
    assert _passed(wrong, "tolerance", OPINIONS[::SOME], tolerance=1e-3) == []


def _passed(
    wrong: str, answers: str, opinions: list[dict[str, float | None]], tolerance: float | None = None
) -> list[tuple[dict[str, float | None], str]]:
    """Opinions with which the wrong model was taken for the right one."""
    passed = []
    for seed, opinion in enumerate(opinions):
        oracle = ANSWERS[answers](as_oracle(TRUTH), seed)
        learner = Opinionated(WRONG[wrong], opinion)
        result = unsoftmax.recover(oracle, learner=learner, seed=seed, tolerance=tolerance)
        if result.status not in (Status.OUTSIDE_CLASS, Status.UNRESOLVED) or result.model is not None:
            passed.append((opinion, str(result.status)))
    return passed
