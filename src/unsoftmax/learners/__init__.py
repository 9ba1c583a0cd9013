"""The pairings of a meter and a solver, one file a theorem or setting."""

from unsoftmax.learners.base import Known, Learned, Learner, Readout
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.computed.learner import ComputedHeadsLearner
from unsoftmax.learners.one_head.clipped import ClippedLearner, clipped
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.one_head.labels import LabelLearner, from_labels
from unsoftmax.learners.one_head.low_precision import LowPrecisionLearner, low_precision
from unsoftmax.learners.one_head.noisy import NoiseLearner, noisy
from unsoftmax.learners.one_head.rounded import RoundedLearner, rounded
from unsoftmax.learners.one_head.within_tolerance import ToleranceLearner, within_tolerance
from unsoftmax.learners.paper.appendix_c import appendix_c
from unsoftmax.learners.paper.milli import Milli2019, milli_2019
from unsoftmax.learners.paper.theorem_4_1 import Theorem41, theorem_4_1
from unsoftmax.learners.paper.theorem_5_1 import Theorem51, theorem_5_1
from unsoftmax.learners.paper.theorem_6_1 import Theorem61, theorem_6_1
from unsoftmax.learners.paper.theorem_b_1 import TheoremB1, theorem_b_1
from unsoftmax.learners.relu_network.learner import NetworkFound, ReluNetworkLearner
from unsoftmax.learners.several_heads import MultiHeadLearner
from unsoftmax.learners.transformer import TransformerLearner
from unsoftmax.learners.vector_answers import VectorOutputsLearner

__all__ = [
    "Assumption",
    "Claim",
    "ClippedLearner",
    "ComputedHeadsLearner",
    "Known",
    "LabelLearner",
    "Learned",
    "Learner",
    "LowPrecisionLearner",
    "Milli2019",
    "MultiHeadLearner",
    "NetworkFound",
    "NoiseLearner",
    "QueryCount",
    "Readout",
    "ReluNetworkLearner",
    "RoundedLearner",
    "SingleHeadLearner",
    "Size",
    "Theorem41",
    "Theorem51",
    "Theorem61",
    "TheoremB1",
    "ToleranceLearner",
    "TransformerLearner",
    "VectorOutputsLearner",
    "appendix_c",
    "clipped",
    "from_labels",
    "low_precision",
    "milli_2019",
    "noisy",
    "rounded",
    "theorem_4_1",
    "theorem_5_1",
    "theorem_6_1",
    "theorem_b_1",
    "within_tolerance",
]
