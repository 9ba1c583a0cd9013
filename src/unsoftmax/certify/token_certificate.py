"""Fresh sequences of token ids against a model: lengths, orders and frequencies as they occur in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.certify.certificate import Certificate
from unsoftmax.models import TokenHeads
from unsoftmax.oracles import Ids

__all__ = ["TokenCertificate", "certify_tokens", "token_sequences"]

# the chance that a box passes which deviates on the stated fraction is one in ten thousand
_CONFIDENCE = 0.9999
# Lengths of fresh sequences, where the target takes them; one more is drawn between the last of the first and
# each of the others, so that nobody knows all lengths that are compared.
_EVERY, _LONG = 17, (33, 64)
_SEQUENCES = 462  # of all lengths, half of uniform and half of frequent tokens
_EACH = 24  # sequences of every kind that is made for the order of tokens


_ORDERS, _REPEATED, _BEFORE = (
    "the same tokens in two orders",
    "repeated tokens",
    "the asking token before itself",
)
_OWN = "the user's own sequences"
_DISTRIBUTION = (
    "of every length as many; in half of the sequences tokens are uniform from the vocabulary, in the others "
    "as frequent as words, with frequent ones of their own"
)
_FOURS = f"; {_EACH} of four tokens, and the same ones in another order, repeated, and the last one twice"


class TokenCertificate(Certificate):
    """A certificate over sequences of tokens."""

    @property
    def statement(self) -> str:
        return super().statement.replace(" rows deviate", " tokens deviate")


class _Answers(Protocol):
    def ask(self, batch: Array) -> Array: ...


def certify_tokens(
    answers: _Answers,
    model: TokenHeads,
    rng: np.random.Generator,
    *,
    allowed: float,
    longest: int,
    corpus: list[Ids] | None = None,
) -> Certificate:
    """Compares the model with fresh answers. Errors are relative to the spread of the model's values.

    longest: the most tokens of a sequence. corpus: sequences of the user's own, compared as well.
    """
    errors: dict[str, float] = {}
    lengths: set[int] = set()
    n, largest, independent, own = 0, 0.0, 0, 0
    for kind, ids in token_sequences(model.vocabulary, longest, rng, corpus):
        batch = cast(Array, ids)
        off = np.abs(answers.ask(batch) - model(ids))
        off = np.where(np.isfinite(off), off, np.inf).reshape(len(ids), -1).max(axis=1)
        relative = off / model.sensitivity(batch)
        errors[kind] = max(errors.get(kind, 0.0), float(relative.max()))
        largest, n = max(largest, float(off.max())), n + len(ids)
        lengths.add(ids.shape[1])
        independent += _not_copied(kind, ids)
        own += len(ids) if kind == _OWN else 0
    worst = max(errors, key=lambda kind: errors[kind])
    return TokenCertificate(
        passed=errors[worst] <= allowed,
        max_error=largest,
        max_relative_error=errors[worst],
        allowed=allowed,
        n_queries=n,
        confidence=_CONFIDENCE,
        fraction=float(1.0 - (1.0 - _CONFIDENCE) ** (1.0 / independent)),
        lengths=tuple(sorted(lengths)),
        sizes=(),
        by_kind=errors,
        failed=None if errors[worst] <= allowed else worst,
        distribution=_in_words(longest, own),
    )


def _not_copied(kind: str, ids: Ids) -> int:
    """How many of these sequences are not made from others, and are not there twice in the user's file."""
    if kind == _OWN:
        return len(np.unique(ids, axis=0))
    return {_ORDERS: len(ids) // 2, _REPEATED: 0, _BEFORE: 0}.get(kind, len(ids))


def _in_words(longest: int, own: int) -> str:
    """How the sequences were drawn."""
    drawn = _DISTRIBUTION + (_FOURS if longest >= 4 else "")
    return f"{own} are the user's own; of the others, {drawn}" if own else drawn


def token_sequences(
    vocabulary: int, longest: int, rng: np.random.Generator, corpus: list[Ids] | None = None
) -> Iterator[tuple[str, Ids]]:
    """Kinds of sequences with their names: uniform tokens, tokens as frequent as words, repeats, orders.

    Every sequence has frequent tokens of its own. With the same ones in all, the sequences would be one draw
    of which tokens are frequent, and say little of the others.
    """
    frequency = 1.0 / (1.0 + np.arange(vocabulary))
    frequency /= frequency.sum()
    lengths = _lengths(longest, rng)
    each = max(1, _SEQUENCES // (2 * len(lengths)))
    for length in lengths:
        yield f"uniform tokens, {_named(length)}", rng.integers(0, vocabulary, (each, length))
        yield (
            f"frequent tokens, {_named(length)}",
            _renamed(rng.choice(vocabulary, (each, length), p=frequency), vocabulary, rng),
        )
    if longest >= 4:
        base = rng.integers(0, vocabulary, (_EACH, 4))
        yield _ORDERS, np.concatenate([base, base[:, [2, 0, 1, 3]]])
        yield _REPEATED, base[:, [0, 1, 1, 1] if vocabulary > 1 else [0, 0, 0, 0]]
        yield _BEFORE, base[:, [0, 3, 1, 3]]
    by_length: dict[int, list[Ids]] = {}
    for sequence in corpus or []:
        by_length.setdefault(len(sequence), []).append(np.asarray(sequence, dtype=np.int64))
    for _, sequences in sorted(by_length.items()):
        yield _OWN, np.stack(sequences)


def _lengths(longest: int, rng: np.random.Generator) -> list[int]:
    """All short ones, some long ones, and one drawn below each of these."""
    lengths = set(range(1, min(longest, _EVERY) + 1))
    shorter = _EVERY
    for length in _LONG:
        if length <= longest:
            lengths |= {int(rng.integers(shorter + 1, length)), length}
        shorter = length
    return sorted(lengths | ({longest} if longest <= 512 else set()))


def _renamed(ranks: Ids, vocabulary: int, rng: np.random.Generator) -> Ids:
    """Tokens for ranks (n, length): in every sequence equal ranks become one token, others other ones."""
    ids = np.empty_like(ranks)
    for row, own in zip(ids, ranks, strict=True):
        different, which = np.unique(own, return_inverse=True)
        row[:] = rng.choice(vocabulary, len(different), replace=False)[which]
    return ids


def _named(length: int) -> str:
    return (
        f"{length} of them" if length <= 4 else "5 to 16 of them" if length <= 16 else "more than 16 of them"
    )
