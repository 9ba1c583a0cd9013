"""A first look at a target of token ids: what it may be, before the values of all tokens are paid for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import IDENTIFY, Finding, Seen, Subject
from unsoftmax.arrays import Array
from unsoftmax.learners.tokens.books import SomeTokens, TokenBooks
from unsoftmax.learners.tokens.learned import readout_of
from unsoftmax.learners.tokens.learner import TokenLearner
from unsoftmax.learners.tokens.positions.second_place import refuse_other_places
from unsoftmax.learners.tokens.several_heads.count import count_heads
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.outcomes import Status, Stop

__all__ = ["TokenLook", "look_at_tokens"]

_TOKENS = 16  # enough for pairs and triples of tokens whose values differ
_PLACES = "attention over token ids where order matters, as with learned places"
_AGAIN = 4  # of them are asked twice
_EQUAL = 2e-5  # of the answers: float32 arithmetic moves answers to equal sequences by less


@dataclass(frozen=True)
class TokenLook:
    """What the look found. obstacle: why no learner of tokens can succeed; ending: how it would end. Empty
    and None where nothing speaks against one."""

    name: str
    findings: tuple[Finding, ...]
    obstacle: str = ""
    ending: Status | None = None

    @property
    def order_matters(self) -> bool:
        """Whether it may be a head with learned places."""
        return self.name == _PLACES


def look_at_tokens(asker: TokenBooks, longest: int, rng: np.random.Generator) -> TokenLook:
    """The learner's own class tests, on a few tokens: about 80 queries where it is one head, 280 for several,
    200 for learned places.

    >>> import unsoftmax
    >>> from unsoftmax.ledger import Ledger
    >>> ledger = Ledger(unsoftmax.as_oracle("demo:tokens?V=30&r=2"))
    >>> look_at_tokens(ledger, 8, np.random.default_rng(0)).name
    'one attention head over token ids'
    """
    tokens = rng.permutation(asker.width)[:_TOKENS]
    view = SomeTokens(asker, tokens)
    sequences = TokenSequences(view, longest)
    with asker.phase(IDENTIFY):
        start = asker.bill.total
        alone = sequences.values()
        again = sequences.raw(np.arange(min(_AGAIN, len(tokens)))[:, None])
        price = asker.bill.total - start
    if not np.array_equal(alone[:_AGAIN], again):
        apart = float(np.abs(alone[:_AGAIN] - again).max())
        if apart > _EQUAL * float(np.abs(alone).max()):
            text = f"single tokens asked twice were answered {apart:.2g} apart"
            seen = Finding(Subject.REPEATABILITY, Seen.RANDOM, text, price)
            text = "the same ids get different answers"
            return TokenLook("no function of its ids", (seen,), text, Status.OUTSIDE_CLASS)
    text = f"{len(again)} tokens, asked twice, were answered alike"
    findings = [Finding(Subject.REPEATABILITY, "deterministic", text, price)]
    before = asker.bill.total
    try:
        name, value = _tested(view, longest, alone, rng)
    except Stop as stop:
        paid = asker.bill.total - before
        findings.append(Finding(Subject.FAMILY, "none that is learnt", stop.reason, paid))
        return TokenLook("a function of token ids", tuple(findings), stop.reason, stop.status)
    text = "the learner's own tests, on a few tokens"
    findings.append(Finding(Subject.FAMILY, value, text, asker.bill.total - before))
    return TokenLook(name, tuple(findings))


def _tested(view: SomeTokens, longest: int, alone: Array, rng: np.random.Generator) -> tuple[str, str]:
    """What the tests leave. Raises as the learner would."""
    begun = TokenLearner().begin(view, longest, alone, rng)
    read = alone if (readout := readout_of(alone)) is None else np.asarray(alone @ readout)
    if begun.places:
        with view.phase("class tests"):
            refuse_other_places(TokenSequences(view, longest, readout), read)
        return _PLACES, "one head with places"
    if begun.meter is None:
        return "a constant function of token ids", "constant"
    if begun.against is None:
        return "one attention head over token ids", "one head"
    with view.phase("class tests"):
        count = count_heads(begun.meter.sequences, read, begun.meter.noise, rng, begun.against)
    return f"{count.heads} attention heads over token ids", f"{count.heads} heads"
