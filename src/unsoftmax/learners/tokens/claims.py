"""What is promised for targets that take token ids."""

from __future__ import annotations

from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size

__all__ = ["TOKEN_HEAD_CLAIM"]

_CLASS_TESTS = 62  # 32 of equal sequences, 30 of triples
_CANDIDATES = 6


def _usual(size: Size) -> int:
    V, r = size.width, size.rank
    return V + r * (2 * V - 1 - r) + _CLASS_TESTS + _CANDIDATES * (r + 1)


def _most(size: Size) -> int:
    """Entries of the cross asked twice, columns and tokens with all further entries, third tokens."""
    V, r = size.width, size.rank
    further = 3 * r + 4
    return V + _CLASS_TESTS + 2 * r * V + V * (2 * r + 2) + 2 * V * further + 150 * (r + 13)


TOKEN_HEAD_CLAIM = Claim(
    title="one attention head over token ids, embeddings unknown",
    source="this library: adaptive cross approximation of the table of scores, read from copies of tokens",
    assumptions=(
        Assumption(
            "order and common copies of tokens do not matter", "equal sequences in another order, and doubled"
        ),
        Assumption("one head", "sequences of three tokens against their pairs"),
        Assumption("scores can be read", "error bars of every entry; Unresolved where too many are infinite"),
    ),
    queries=QueryCount(
        "V + r(2V - 1 - r) + 6(r + 1) + 62 for moderate scores; more where scores are strong",
        "upper",
        _most,
        _usual,
    ),
    recovers="the value of every token, and the table of scores less its mean over tokens",
    symmetry="none: keys and queries only up to an invertible matrix, which the table does not show",
    verification=lambda size: size.width + 24 * 21,
)
