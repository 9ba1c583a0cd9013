"""What heads behind arithmetic that rounds cost: how many queries, by format and size, and the claims."""

from __future__ import annotations

from dataclasses import replace

from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.computed.attempts import ATTEMPTS, COARSE_ATTEMPTS
from unsoftmax.learners.computed.prices import (
    COARSE_EFFORT,
    COARSE_PAIRS,
    FRESH_QUERIES,
    PRICE_OF_VECTORS,
    first_pairs,
    pairs_for_all,
    price_of_start,
    price_of_vectors,
)
from unsoftmax.learners.row_tests import QUERIES_OF_HEAD_TESTS
from unsoftmax.learners.skip import QUERIES_WITHOUT_SKIP

__all__ = ["CLAIM", "COARSE_CLAIM"]

# queries beyond a multiple of the parameters: the search for plateaus, which small layers notice
_SEARCH = 1500
# pairs a parameter that coarse arithmetic asks for ranks that it sees too high: layers of width 8 and 16 took
# 1.2 to 1.4
_HIGHER_RANKS = 1.3


def _parameters(size: Size) -> int:
    """Degrees of freedom of all heads: [W w0], the readout or V, the constant."""
    d, m = size.width, size.outputs
    ranks = size.ranks or (d,)
    scores = sum(r * (2 * d + 1 - r) for r in ranks)
    if m is None:
        return scores + len(ranks) * d + 1
    return scores + sum(s * (d + m - s) for s in _value_ranks(size, m)) + m


def _at_full_ranks(size: Size, outputs: int) -> int:
    """Parameters as coarse arithmetic counts them for vectors: its rounding hides which ranks are lower."""
    heads = len(size.ranks or (size.width,))
    full = (min(size.width, outputs),) * heads
    return _parameters(replace(size, ranks=(size.width,) * heads, value_ranks=full))


def _value_ranks(size: Size, outputs: int) -> tuple[int, ...]:
    """Those of a usual layer, where none are given."""
    heads = len(size.ranks or (size.width,))
    return size.value_ranks or (max(1, min(size.width // heads, outputs)),) * heads


def _usual(size: Size) -> int:
    """What the routes keep to where no attempt is repeated: see `scalar_route` and `vector_route`."""
    tests = QUERIES_WITHOUT_SKIP + QUERIES_OF_HEAD_TESTS
    p, d, beside = _parameters(size), size.width, tests + FRESH_QUERIES
    if size.outputs is not None:
        unknowns = p + sum(r * r for r in (*(size.ranks or (d,)), *_value_ranks(size, size.outputs)))
        return int(price_of_vectors(unknowns) * p / size.outputs) + QUERIES_WITHOUT_SKIP
    start, heads = price_of_start(d, size.ranks or (d,)), max(1, size.heads)
    return int(start + p * pairs_for_all(heads, start / p) + first_pairs(heads, size.rank, p)) + beside


def _usual_coarse(size: Size) -> int:
    """The same in bfloat16 and float16."""
    if size.outputs is not None:
        price = COARSE_EFFORT * PRICE_OF_VECTORS
        return int(price * _at_full_ranks(size, size.outputs) / size.outputs) + QUERIES_WITHOUT_SKIP
    beside = QUERIES_WITHOUT_SKIP + QUERIES_OF_HEAD_TESTS + FRESH_QUERIES
    p, start = _parameters(size), price_of_start(size.width, size.ranks or (size.width,))
    pairs = (COARSE_PAIRS + _HIGHER_RANKS) * p + first_pairs(max(1, size.heads), size.rank, p)
    return int(start + pairs) + beside


def _most(size: Size) -> int:
    """More heads than half the width make the start dearer: their readouts leave few rows that show one."""
    if size.outputs is None:
        return int((6.0 + 6.0 * max(1, size.heads) / size.width) * _parameters(size)) + _SEARCH
    return int(16.0 * _parameters(size) / size.outputs) + _SEARCH


def _most_coarse(size: Size) -> int:
    """The same in bfloat16 and float16, in one attempt."""
    if size.outputs is not None:
        return int(24.0 * _at_full_ranks(size, size.outputs) / size.outputs) + _SEARCH
    return int((12.0 + 6.0 * max(1, size.heads) / size.width) * _parameters(size)) + _SEARCH


def _identification(size: Size) -> int:
    """Numbers are first asked whether they are rounded, stored short or noisy; vectors only how they are
    computed."""
    return 102 if size.outputs is None else 61


def _verification(size: Size) -> int:
    """Measured; sharper sequences for every head."""
    return 189 + 48 * max(1, size.heads)


CLAIM = Claim(
    title="Heads behind arithmetic that rounds at every step",
    source="this library; no published work recovers attention through float32 arithmetic",
    assumptions=(
        Assumption("every step inside rounds", "second differences of single rows against their last digits"),
        Assumption(
            "every head is one softmax over the rows", "fresh sequences of 2, 5 and 17 rows; certificate"
        ),
        Assumption(
            "rows may be long enough to saturate the scores", "levels that stay when rows grow fourfold"
        ),
        Assumption("the heads' readouts are independent", "the part of each outside the span of the others"),
    ),
    queries=QueryCount(
        "4.5 p, or 7.5 p/m for vector answers (14 p/m in wide layers), p the parameters",
        "upper",
        _most,
        _usual,
        attempts=ATTEMPTS,
    ),
    recovers="W, v and w0 of every head, and c, up to the layer's own rounding; the bound is a 99 % one",
    symmetry="order of heads",
    verification=_verification,
    identification=_identification,
    one_head=True,
)

COARSE_CLAIM = replace(
    CLAIM,
    queries=QueryCount(
        "10.5 p, or 18.75 p/m for vector answers and p at full ranks (26 p/m of two heads)",
        "upper",
        _most_coarse,
        _usual_coarse,
        attempts=COARSE_ATTEMPTS,
    ),
)
