"""Targets that take token ids: which learner, by what the first sequences show."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.claims import Claim
from unsoftmax.learners.tokens.claims import TOKEN_HEAD_CLAIM
from unsoftmax.learners.tokens.one_head import LearnedTokens, OneTokenHead, TokenBooks
from unsoftmax.models import TokenHeads

__all__ = ["TokenLearner"]


@dataclass(frozen=True)
class TokenLearner:
    """Learns a target of token ids."""

    one_head: OneTokenHead = field(default_factory=OneTokenHead)

    @property
    def family(self) -> str:
        """The family of the models it returns."""
        return TokenHeads.family

    @property
    def claim(self) -> Claim:
        """What is promised."""
        return TOKEN_HEAD_CLAIM

    def learn(self, asker: TokenBooks, longest: int, rng: np.random.Generator) -> LearnedTokens:
        """Queries through the ledger only. longest: the most tokens of a sequence."""
        return self.one_head.learn(asker, longest, rng)
