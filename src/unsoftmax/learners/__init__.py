"""The pairings of a meter and a solver, one file a theorem or setting."""

from unsoftmax.learners.answer_model import AnswerModel, Finding, identify
from unsoftmax.learners.answers import AnswerAwareLearner
from unsoftmax.learners.auto import FAMILIES, AutoLearner, learner_for
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.labels import LabelLearner, from_labels
from unsoftmax.learners.low_precision import LowPrecisionLearner, low_precision
from unsoftmax.learners.single_head import SingleHeadLearner
from unsoftmax.learners.theorem_4_1 import Theorem41, theorem_4_1
from unsoftmax.learners.within_tolerance import ToleranceLearner, within_tolerance

__all__ = [
    "FAMILIES",
    "AnswerAwareLearner",
    "AnswerModel",
    "Assumption",
    "AutoLearner",
    "Claim",
    "Finding",
    "LabelLearner",
    "Learned",
    "Learner",
    "LowPrecisionLearner",
    "QueryCount",
    "SingleHeadLearner",
    "Theorem41",
    "ToleranceLearner",
    "from_labels",
    "identify",
    "learner_for",
    "low_precision",
    "theorem_4_1",
    "within_tolerance",
]
