"""How many queries the fits may use, in units of the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax.learners.computed.fit_progress import MANY

__all__ = [
    "COARSE_EFFORT",
    "COARSE_PAIRS",
    "FRESH_LENGTHS",
    "FRESH_LENGTHS_OF_VECTORS",
    "FRESH_QUERIES",
    "FRESH_QUERIES_OF_VECTORS",
    "PRICE_OF_VECTORS",
    "first_pairs",
    "pairs_for_all",
    "price_of_start",
    "price_of_vectors",
]

# queries a parameter that the start, without its first general pairs, and the general pairs together should
# cost: 4.5 with the first general pairs of wide layers, and with the fresh sequences
_PRICE_OF_NUMBERS = 4.2
# general pairs a parameter. With half of the least, one layer in three with half as many heads as columns
# deviated by more than 1.5 times its own rounding; a fit to more than the most takes longer, and is hardly
# better
_LEAST_PAIRS, _MOST_PAIRS = 1.0, 2.0
# general pairs a parameter in coarse arithmetic: with half as many, one of 25 layers of width 16 in bfloat16
# deviated by more than its own rounding (1.08)
COARSE_PAIRS = 6.0
# of the start: scans of lines, and what each head adds to them and to pilots; plateaus, in widths; columns
# and rows that are asked again with lower scores. Within 5 % in widths 8 to 32 with 2 to 8 heads
_SCANS, _OF_A_HEAD, _OF_A_PLATEAU, _ASKED_AGAIN = 160.0, 87.0, 3.2, 1.12
# queries, in units of parameters over outputs, that all should cost; with what the first look asks of a skip
# connection, layers of width 16 stay below 8
PRICE_OF_VECTORS = 7.5
# the same in layers with many unknowns, where JᵀJ is not held: with half of it a fit takes ten times as many
# steps in trained layers (width 120, eight heads)
_PRICE_OF_WIDE_VECTORS = 14.0
COARSE_EFFORT = 2.5  # times the price in coarse arithmetic, for a fit as exact as the layer
# rows of fresh sequences, and how many there are of each of two sizes of rows; half as many vectors, each of
# which shows many numbers
FRESH_LENGTHS = ((2, 16), (5, 8), (17, 8))
# (rows, sequences): an answer holds m numbers, so fewer sequences do than for single numbers
FRESH_LENGTHS_OF_VECTORS = ((2, 8), (5, 4), (17, 4))
FRESH_QUERIES, FRESH_QUERIES_OF_VECTORS = (
    2 * sum(count for _, count in lengths) for lengths in (FRESH_LENGTHS, FRESH_LENGTHS_OF_VECTORS)
)


def first_pairs(heads: int, rank: int, parameters: int) -> float:
    """General pairs that tell the rows of every W along the other heads' readouts: two and a half for every
    unknown of those rows."""
    return max(2.5 * heads * (heads - 1) * rank, 0.2 * parameters) if heads > 1 else 0.0


def price_of_start(width: int, ranks: Sequence[int]) -> float:
    """Queries for numbers before all heads are asked together: single rows, plateaus, and each head alone."""
    heads = len(ranks)
    plateaus = _OF_A_PLATEAU * width * (heads + 1) if heads > 1 else 0.0
    seen = width - heads + 1
    alone = sum(min(seen * (width + 1), seen * (rank + 4) + (rank + 3) * (width + 1)) for rank in ranks)
    return 2.0 * width + _SCANS + _OF_A_HEAD * heads + plateaus + _ASKED_AGAIN * alone


def pairs_for_all(heads: int, start: float) -> float:
    """General pairs per parameter, after a start that took so many queries per parameter. One head is known
    as well from the least."""
    most = _MOST_PAIRS if heads > 1 else _LEAST_PAIRS
    return min(max(_PRICE_OF_NUMBERS - start, _LEAST_PAIRS), most)


def price_of_vectors(unknowns: int) -> float:
    """Queries in units of parameters over outputs."""
    return _PRICE_OF_WIDE_VECTORS if unknowns > MANY else PRICE_OF_VECTORS
