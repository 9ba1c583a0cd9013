"""The pairings of a meter and a solver, one file a theorem or setting."""

from unsoftmax.learners.answer_model import AnswerModel, Finding, identify
from unsoftmax.learners.answers import AnswerAwareLearner
from unsoftmax.learners.auto import FAMILIES, AutoLearner, learner_for
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.milli import Milli2019, milli_2019
from unsoftmax.learners.multi_head import MultiHeadLearner
from unsoftmax.learners.relu_network import NetworkFound, ReluNetworkLearner
from unsoftmax.learners.single_head import SingleHeadLearner
from unsoftmax.learners.theorem_4_1 import Theorem41, theorem_4_1
from unsoftmax.learners.transformer import TransformerLearner
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
    "Milli2019",
    "MultiHeadLearner",
    "NetworkFound",
    "QueryCount",
    "ReluNetworkLearner",
    "SingleHeadLearner",
    "Theorem41",
    "ToleranceLearner",
    "TransformerLearner",
    "VectorOutputsLearner",
    "identify",
    "learner_for",
    "milli_2019",
    "theorem_4_1",
    "within_tolerance",
]
