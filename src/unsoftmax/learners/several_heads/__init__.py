"""Several heads: isolate each by saturating the others."""

from unsoftmax.learners.several_heads.learner import MultiHeadLearner

__all__ = ["MultiHeadLearner"]
