"""The pairings of a meter and a solver, one file a theorem or setting."""

from unsoftmax.learners.answer_model import AnswerModel, Finding, identify
from unsoftmax.learners.answers import AnswerAwareLearner
from unsoftmax.learners.auto import FAMILIES, AutoLearner, learner_for
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.multi_head import MultiHeadLearner
from unsoftmax.learners.relu_network import NetworkFound, ReluNetworkLearner
from unsoftmax.learners.single_head import SingleHeadLearner
from unsoftmax.learners.theorem_4_1 import Theorem41, theorem_4_1
from unsoftmax.learners.vector_outputs import VectorOutputsLearner
from unsoftmax.learners.within_tolerance import ToleranceLearner, within_tolerance

__all__ = [
    "FAMILIES",
    "AnswerAwareLearner",
    "AnswerModel",
    "Assumption",
    "AutoLearner",
    "Claim",
    "Finding",
    "Learned",
    "Learner",
    "MultiHeadLearner",
    "NetworkFound",
    "QueryCount",
    "ReluNetworkLearner",
    "SingleHeadLearner",
    "Theorem41",
    "ToleranceLearner",
    "VectorOutputsLearner",
    "identify",
    "learner_for",
    "theorem_4_1",
    "within_tolerance",
]
