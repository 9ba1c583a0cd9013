"""Vector answers: one head, all heads at once, or through one readout."""

from unsoftmax.learners.vector_answers.learner import VectorOutputsLearner

__all__ = ["VectorOutputsLearner"]
