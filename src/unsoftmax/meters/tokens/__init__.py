"""Answers to sequences of token ids -> scores of token pairs."""

from unsoftmax.meters.tokens.copy_patterns import CopyPatterns
from unsoftmax.meters.tokens.pairs import Comparison, PairRequest, TokenPairMeter
from unsoftmax.meters.tokens.reader import PairReader
from unsoftmax.meters.tokens.sequences import Mask, TokenAnswers, TokenSequences

__all__ = [
    "Comparison",
    "CopyPatterns",
    "Mask",
    "PairReader",
    "PairRequest",
    "TokenAnswers",
    "TokenPairMeter",
    "TokenSequences",
]
