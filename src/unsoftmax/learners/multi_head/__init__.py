"""Several heads: isolate each by saturating the others."""

from unsoftmax.learners.multi_head.learner import MultiHeadLearner

__all__ = ["MultiHeadLearner"]
