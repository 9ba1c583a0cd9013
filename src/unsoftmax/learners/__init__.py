"""The pairings of a meter and a solver, one file a theorem or setting."""

from unsoftmax.learners.auto import FAMILIES, AutoLearner, learner_for
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.single_head import SingleHeadLearner
from unsoftmax.learners.theorem_4_1 import Theorem41, theorem_4_1
from unsoftmax.learners.theorem_5_1 import Theorem51, theorem_5_1

__all__ = [
    "FAMILIES",
    "Assumption",
    "AutoLearner",
    "Claim",
    "Learned",
    "Learner",
    "QueryCount",
    "SingleHeadLearner",
    "Theorem41",
    "Theorem51",
    "learner_for",
    "theorem_4_1",
    "theorem_5_1",
]
