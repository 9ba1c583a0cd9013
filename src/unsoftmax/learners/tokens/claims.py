"""What is promised for targets that take token ids."""

from __future__ import annotations

from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size

__all__ = ["FIXED_ASKER_CLAIM", "POSITIONS_CLAIM", "TOKEN_HEADS_CLAIM", "TOKEN_HEAD_CLAIM"]

_CLASS_TESTS = 62  # 32 of equal sequences, 30 of triples
_CANDIDATES = 6  # askers that a rank has to explain before it is believed; see `CrossOptions`
_NO_ORDER = Assumption(
    "order and common copies of tokens do not matter", "equal sequences in another order, and doubled"
)
_COUNTING = 16 * 11  # pairs and patterns by which heads are counted


def _verification(size: Size) -> int:
    """Every token once, and up to 558 sequences."""
    return size.width + 558


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
        _NO_ORDER,
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
    symmetry="keys and queries up to an invertible matrix, which the table of scores does not show",
    verification=_verification,
)


def _several_usual(size: Size) -> int:
    """One column in 2H + 2 patterns, r − 1 in 2H − 1, and r + 2 pairs of every other column."""
    V, r, H = size.width, size.rank, max(size.heads, 2)
    patterns = 2 * H - 1
    return V + _CLASS_TESTS + _COUNTING + V * (2 * H + 2) + (r - 1) * V * patterns + V * (r + 2) * patterns


def _several_most(size: Size) -> int:
    """Repairs of all values beside eight more askers, every fit three times, twice as many columns."""
    V, r, H = size.width, size.rank, max(size.heads, 2)
    patterns = 2 * H - 1
    columns = 2 * (r + 1) * V * patterns + 4 * V * (2 * r + 4) * patterns
    return V + _CLASS_TESTS + _COUNTING + 9 * V * (2 * H + 2) + columns


TOKEN_HEADS_CLAIM = Claim(
    title="two to four attention heads over token ids, embeddings unknown",
    source="this library: sums of sigmoids over copies of tokens, one order of heads, and a joint refinement",
    assumptions=(
        _NO_ORDER,
        Assumption(
            "two to four heads", "the fewest sigmoids that explain all patterns of copies of 16 pairs"
        ),
        Assumption("heads differ", "error bars of every pair; Unresolved where tokens stay open"),
    ),
    queries=QueryCount(
        "V(2H + 3) + V(2r + 1)(2H - 1) + 238 for moderate scores; more where pairs are told apart poorly",
        "upper",
        _several_most,
        _several_usual,
    ),
    recovers="values and scores of every token in every head",
    symmetry="order of heads; constants of their values add up; keys and queries up to an invertible matrix",
    verification=_verification,
)


def _positions_usual(size: Size) -> int:
    """A block of 2·12² pairs, r + 2 whole columns, r + 3 pairs of every column, 3(2r + 1) for each place."""
    V, r = size.width, size.rank
    return V + 16 + 2 * 12**2 + V * (2 * r + 5) + 3 * (2 * r + 1) * (64 - 2)


def _positions_most(size: Size) -> int:
    """Blocks of 12, 24 and 48 tokens."""
    return _positions_usual(size) + 2 * (24**2 + 48**2) + 32


POSITIONS_CLAIM = Claim(
    title="one attention head over token ids with learned positions, embeddings unknown",
    source="this library: the second place by the rank of a block of scores, further places one by one",
    assumptions=(
        Assumption("one head", "scores of a block of pairs have a low rank at one value of the second place"),
        Assumption("places add to keys, queries and values", "three times as many sequences as unknowns"),
    ),
    queries=QueryCount(
        "V(2r + 6) + 2·12² + 3(2r + 1)(L - 2) + 16; L is counted as 64, its largest",
        "upper",
        _positions_most,
        _positions_usual,
    ),
    recovers="keys, queries and values of every token and every place",
    symmetry="shifts between tokens and places, of all keys, and an invertible matrix; not the first query",
    verification=_verification,
)


FIXED_ASKER_CLAIM = Claim(
    title="one attention head over token ids in a fixed frame, whose token asks",
    source="this library: two numbers of copies of every token",
    assumptions=(
        Assumption("one head", "fresh sequences of many tokens in the frame"),
        Assumption("the fixed tokens weigh what they weigh as free ones", "both are measured and compared"),
    ),
    queries=QueryCount("2V + 48", "upper", lambda size: 2 * size.width + 48),
    recovers="the value of every token, and its score where the frame asks",
    symmetry="a common shift of all scores; other tokens never ask, so their scores are not seen",
    verification=_verification,
)
