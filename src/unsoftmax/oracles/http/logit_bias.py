"""All log-probabilities from a server that tells the k largest, where requests may add a bias to chosen
tokens.

A bias large enough makes its tokens the likeliest ones, so that they are among the k that are told (arXiv
2403.06634). Servers differ in what they tell. Some tell log-probabilities with the bias: k - 1 tokens and one
reference a request, and differences of log-probabilities are differences of logits. Others, vLLM among them,
tell them without it, but always that of the token that they chose: one token a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault

__all__ = ["Bias", "BiasShows", "Told", "find_bias", "find_vocabulary"]

_SIZES = (100.0, 50.0, 20.0)  # tried in turn; 100 is the largest that public servers take
# most that told log-probabilities differ by where the bias is not in them; with it they fall by its size
_UNCHANGED = 1e-2
_LARGEST_VOCABULARY = 1 << 22  # of any model known, sixteen times over

Told = Mapping[int, float]
Ask = Callable[[Mapping[int, float] | None], Told | None]
"""Log-probabilities told for one prompt with a bias by token, or None when the server refuses the bias."""


class BiasShows(Enum):
    """Which log-probabilities a server tells when a request has a bias."""

    IN_THE_ANSWERS = "with the bias"
    IN_THE_CHOICE = "without it, and that of the chosen token"


@dataclass(frozen=True)
class Bias:
    """size: what is added. shows: what the server tells then. most: log-probabilities an answer. tokens:
    vocabulary."""

    size: float
    shows: BiasShows
    most: int
    tokens: int

    @property
    def readable(self) -> bool:
        """Whether all log-probabilities follow: with the bias in the answers, an answer must hold two
        tokens."""
        return self.shows is BiasShows.IN_THE_CHOICE or self.most >= 2

    @property
    def groups(self) -> list[list[int]]:
        """The tokens of every request. Token 0 is the reference of all, where one is needed."""
        if self.shows is BiasShows.IN_THE_CHOICE:
            return [[token] for token in range(self.tokens)]
        each = self.most - 1
        return [[0, *range(i, min(i + each, self.tokens))] for i in range(1, self.tokens, each)]

    def request(self, group: Sequence[int]) -> dict[int, float]:
        """The bias of a request, by token."""
        return dict.fromkeys(group, self.size)

    def combine(self, told: Sequence[Told]) -> Array:
        """All log-probabilities of a prompt (V,) from what was told for every group."""
        found = np.full(self.tokens, np.nan)
        for group, each in zip(self.groups, told, strict=True):
            for token in group:
                if token not in each:
                    raise OracleFault(
                        f"a bias of {self.size:g} does not bring token {token} among the {self.most} that "
                        "are told"
                    )
                reference = 0.0 if self.shows is BiasShows.IN_THE_CHOICE else each[group[0]]
                found[token] = each[token] - reference
        if self.shows is BiasShows.IN_THE_CHOICE:
            return found
        largest = found.max()
        return np.asarray(found - largest - np.log(np.exp(found - largest).sum()))


def find_bias(ask: Ask, plain: Told, tokens: int | None) -> Bias | None:
    """What a bias does, when `plain` is told without one; None when it does nothing, or is refused. tokens:
    the vocabulary where it is known."""
    token = next(i for i in range(len(plain) + 1) if i not in plain)
    for size in _SIZES:
        told = ask({token: size})
        if told is None:
            continue
        if token not in told:
            return None
        common = [name for name in plain if name in told]
        changed = max((abs(told[name] - plain[name]) for name in common), default=np.inf)
        in_choice = told[token] < -_UNCHANGED and changed <= _UNCHANGED
        shows = BiasShows.IN_THE_CHOICE if in_choice else BiasShows.IN_THE_ANSWERS
        known = find_vocabulary(ask, size) if tokens is None else tokens
        return None if known is None else Bias(size, shows, len(plain), known)
    return None


def find_vocabulary(ask: Ask, size: float) -> int | None:
    """Tokens of the vocabulary: a bias of a token beyond it is refused. None when none is."""
    good, bad = 0, 1
    while ask({bad: size}) is not None:
        good, bad = bad, 2 * bad
        if bad > _LARGEST_VOCABULARY:
            return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if ask({middle: size}) is not None else (good, middle)
    return good + 1
