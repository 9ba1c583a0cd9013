"""Learners of targets that take token ids."""

from unsoftmax.learners.tokens.fixed_asker import FixedAsker
from unsoftmax.learners.tokens.known_embeddings import KnownEmbeddings
from unsoftmax.learners.tokens.learned import LearnedTokens
from unsoftmax.learners.tokens.learner import TokenLearner
from unsoftmax.learners.tokens.one_head import OneTokenHead

__all__ = ["FixedAsker", "KnownEmbeddings", "LearnedTokens", "OneTokenHead", "TokenLearner"]
