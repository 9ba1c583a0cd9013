"""Learners of targets that take token ids."""

from unsoftmax.learners.tokens.fixed_asker import FixedAsker, FramedHeads
from unsoftmax.learners.tokens.known_embeddings import KnownEmbeddings
from unsoftmax.learners.tokens.learned import LearnedTokens
from unsoftmax.learners.tokens.learner import TokenLearner
from unsoftmax.learners.tokens.one_head import OneTokenHead
from unsoftmax.learners.tokens.prefixed import WithoutPrefix, last_token_asks

__all__ = [
    "FixedAsker",
    "FramedHeads",
    "KnownEmbeddings",
    "LearnedTokens",
    "OneTokenHead",
    "TokenLearner",
    "WithoutPrefix",
    "last_token_asks",
]
