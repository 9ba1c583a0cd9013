"""Vector answers: one head, all heads at once, or through one readout."""

from unsoftmax.learners.vector_outputs.learner import VectorOutputsLearner

__all__ = ["VectorOutputsLearner"]
