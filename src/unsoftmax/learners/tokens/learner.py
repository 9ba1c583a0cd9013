"""Targets that take token ids: which learner, by what the first sequences show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.float_formats import smallest_format
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.tokens.books import TokenBooks
from unsoftmax.learners.tokens.checks import ORDER_TEST, ROUNDING, Agreement, refuse_lengths, refuse_means
from unsoftmax.learners.tokens.claims import TOKEN_HEAD_CLAIM
from unsoftmax.learners.tokens.learned import LearnedTokens, constant_answers
from unsoftmax.learners.tokens.one_head import FINE, OneTokenHead
from unsoftmax.learners.tokens.positions.learner import PositionedHead
from unsoftmax.learners.tokens.several_heads.learner import SeveralTokenHeads
from unsoftmax.meters.tokens import TokenPairMeter, TokenSequences
from unsoftmax.models import TokenHeads
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["Begun", "TokenLearner"]

_MANY = 8  # values: as many short numbers are not chance
_SEVERAL = "several heads with positions would be answered like this too, and they are not learnt"


@dataclass(frozen=True)
class Begun:
    """What class tests found. seen, meter: the kind of answers, and what reads scores; no meter where all
    tokens are answered alike. against: evidence against one head. places: whether order matters."""

    seen: Agreement | None = None
    meter: TokenPairMeter | None = None
    against: str | None = None
    places: bool = False


@dataclass(frozen=True)
class TokenLearner:
    """Learns a target of token ids."""

    one_head: OneTokenHead = field(default_factory=OneTokenHead)
    several_heads: SeveralTokenHeads = field(default_factory=SeveralTokenHeads)
    with_positions: PositionedHead = field(default_factory=PositionedHead)

    @property
    def family(self) -> str:
        """The family of the models it returns."""
        return TokenHeads.family

    @property
    def claim(self) -> Claim:
        """What is promised."""
        return TOKEN_HEAD_CLAIM

    def begin(self, asker: TokenBooks, longest: int, values: Array, rng: np.random.Generator) -> Begun:
        """What the class tests say: about 70 queries for one head. values: answers to single tokens, (V,) or
        (V, m). Raises where no learner can succeed."""
        try:
            seen, meter = self.one_head.meter(asker, longest, values, rng)
        except OutsideClass as refuted:
            if refuted.test is not ORDER_TEST or longest < 3:
                raise
            if (short := smallest_format(values)) is not None and len(values) >= _MANY:
                raise Unresolved(
                    f"order matters, and positions are learnt from exact answers; these are {short} numbers: "
                    f"{refuted.refutation.seen}"
                ) from refuted
            return Begun(places=True)
        if meter is None:
            return Begun(seen)
        with asker.phase("class tests"):
            refuse_lengths(meter, rng.spawn(1)[0])
        against = self.one_head.refuted(asker, meter, rng)
        if against is not None:
            with asker.phase("class tests"):
                refuse_means(meter, rng.spawn(1)[0])
            if seen.noise > FINE * meter.spread:
                raise Unresolved(
                    f"{against}; several heads are learnt from exact answers, and these are "
                    f"{seen.answers.name}: {seen.evidence}"
                )
        return Begun(seen, meter, against)

    def learn(self, asker: TokenBooks, longest: int, rng: np.random.Generator) -> LearnedTokens:
        """Queries through the ledger only. longest: the most tokens of a sequence."""
        with asker.phase("values"):
            values = TokenSequences(asker, longest).values()
        begun = self.begin(asker, longest, values, rng)
        if begun.places:
            noise = ROUNDING * EPS * float(np.abs(values).max())
            try:
                return self.with_positions.learn(asker, longest, rng, values, noise)
            except OutsideClass as other:
                raise Unresolved(f"{other.refutation.seen}; {_SEVERAL}") from other
        seen, meter = begun.seen, begun.meter
        if seen is None or meter is None:
            return constant_answers(values)
        if begun.against is not None:
            learned = self.several_heads.learn(asker, longest, rng, values, meter.noise, begun.against)
            return replace(learned, answers=seen.answers, seen=seen.evidence)
        return self.one_head.scores(asker, meter, values, rng, seen)
