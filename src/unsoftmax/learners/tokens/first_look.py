"""A first look at a target of token ids: about 70 queries say what it may be, before a value is paid for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import IDENTIFY, Finding, Seen, Subject
from unsoftmax.arrays import Array
from unsoftmax.learners.tokens.books import TokenBooks
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.oracles import Ids
from unsoftmax.outcomes import Status

__all__ = ["TokenLook", "look_at_tokens"]

_TOKENS = 16  # signs that agree by chance on so many tokens: once in 32,768 times
_SAMPLES = 6
_EQUAL = 2e-5  # of the answers: float32 arithmetic moves answers to equal sequences by less


@dataclass(frozen=True)
class TokenLook:
    """What the look found. obstacle: why no learner of tokens can succeed; ending: how it would end. Empty
    and None where nothing speaks against one."""

    name: str
    findings: tuple[Finding, ...]
    obstacle: str = ""
    ending: Status | None = None


def look_at_tokens(asker: TokenBooks, longest: int, rng: np.random.Generator) -> TokenLook:
    """Values of a few tokens, the order of tokens, copies of them, and whether pairs are mixtures.

    >>> import unsoftmax
    >>> from unsoftmax.ledger import Ledger
    >>> ledger = Ledger(unsoftmax.as_oracle("demo:tokens?V=30&r=2"))
    >>> look_at_tokens(ledger, 8, np.random.default_rng(0)).name
    'attention over token ids'
    """
    sequences = TokenSequences(asker, longest)
    findings: list[Finding] = []

    def note(subject: str, value: str, evidence: str, before: int) -> None:
        findings.append(Finding(subject, value, evidence, asker.bill.total - before))

    with asker.phase(IDENTIFY):
        start = asker.bill.total
        tokens = rng.permutation(sequences.vocabulary)[:_TOKENS]
        alone = _numbers(sequences, tokens[:, None])
        if not _alike(alone, _numbers(sequences, tokens[:, None])):
            note(
                Subject.REPEATABILITY,
                Seen.RANDOM,
                "single tokens asked twice were answered differently",
                start,
            )
            return TokenLook(
                "no function of its ids",
                tuple(findings),
                "the same ids get different answers",
                Status.OUTSIDE_CLASS,
            )
        note(
            "repeatability", "deterministic", f"{len(tokens)} tokens, asked twice, were answered alike", start
        )
        if longest < 3 or len(tokens) < 3:
            return TokenLook("a function of token ids", tuple(findings))
        before = asker.bill.total
        triples = np.stack([rng.permutation(tokens)[:3] for _ in range(_SAMPLES)])
        ordered = _alike(_numbers(sequences, triples), _numbers(sequences, triples[:, [1, 0, 2]]))
        value = "does not matter" if ordered else Seen.MATTERS
        note(
            "order of tokens",
            value,
            f"the first two of three tokens swapped, in {_SAMPLES} sequences",
            before,
        )
        return (
            _places(sequences, tokens, alone, findings)
            if not ordered
            else _mixtures(sequences, triples[:, 1:], alone, tokens, findings)
        )


def _places(sequences: TokenSequences, tokens: Ids, alone: Array, findings: list[Finding]) -> TokenLook:
    """Where order matters, one head with learned places: [t, t] differs from [t] by a share, between 0 and 1,
    of what place 2 adds, so in one direction for every token."""
    twice = _numbers(sequences, np.repeat(tokens[:, None], 2, axis=1)) - alone
    limit = _EQUAL * float(np.abs(alone).max())
    up, down = int((twice > limit).sum()), int((twice < -limit).sum())
    text = f"[t, t] is answered above [t] for {up} and below for {down} of {len(tokens)} tokens"
    one_way = (up > 0) != (down > 0)
    value = "as of one head" if one_way else "not of one head"
    findings.append(Finding("places", value, text, len(tokens)))
    if not one_way:
        obstacle = (
            f"order matters, and {text}; one head with learned places moves all in one direction, and "
            "several heads with places are not learnt"
        )
        return TokenLook("a function of the order of token ids", tuple(findings), obstacle, Status.UNRESOLVED)
    return TokenLook("attention over token ids with learned places", tuple(findings))


def _mixtures(
    sequences: TokenSequences, pairs: Ids, alone: Array, tokens: Ids, findings: list[Finding]
) -> TokenLook:
    """Copies change nothing, and a pair is answered between its tokens unless several heads mix it."""
    answers = _numbers(sequences, pairs)
    doubled = _numbers(sequences, np.repeat(pairs, 2, axis=1)) if sequences.longest >= 4 else answers
    same = _alike(answers, doubled)
    value = "do not count" if same else Seen.COUNT
    findings.append(Finding("copies", value, f"every token doubled, in {len(pairs)} pairs", 2 * len(pairs)))
    if not same:
        obstacle = (
            "doubling every token of a sequence changes the answer; attention over ids does not do that"
        )
        return TokenLook("a function of token ids", tuple(findings), obstacle, Status.OUTSIDE_CLASS)
    value_of = dict(zip(tokens.tolist(), alone, strict=True))
    ends = np.array([[value_of[int(a)], value_of[int(b)]] for a, b in pairs])
    if float(np.ptp(alone)) > 0.0 and bool((np.abs(answers[:, None] - ends).min(axis=1) == 0.0).all()):
        obstacle = (
            f"every one of {len(pairs)} pairs is answered exactly as one of its tokens: nothing is mixed"
        )
        return TokenLook("a choice among token ids", tuple(findings), obstacle, Status.UNRESOLVED)
    return TokenLook("attention over token ids", tuple(findings))


def _numbers(sequences: TokenSequences, ids: Ids) -> Array:
    """One number for every sequence; the sum of a vector answer."""
    answers = sequences.raw(ids)
    return np.asarray(answers.reshape(len(ids), -1).sum(axis=1))


def _alike(first: Array, second: Array) -> bool:
    return float(np.abs(first - second).max()) <= _EQUAL * float(np.abs(first).max())
