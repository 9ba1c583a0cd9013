"""What the fits keep to: how many queries, in units of the parameters."""

from __future__ import annotations

from unsoftmax.learners.computed.fit_progress import MANY

__all__ = [
    "FRESH_LENGTHS",
    "FRESH_LENGTHS_OF_VECTORS",
    "FRESH_QUERIES",
    "FRESH_QUERIES_OF_VECTORS",
    "PRICE_OF_NUMBERS",
    "PRICE_OF_VECTORS",
    "first_pairs",
    "price_of_vectors",
]

# queries a parameter that the start, without its first general pairs, and the general pairs together should
# cost: 4.5 with the first general pairs of wide layers, and with the fresh sequences
PRICE_OF_NUMBERS = 4.2
# queries, in units of parameters over outputs, that all should cost; with what the first look asks of a skip
# connection, layers of width 16 stay below 8
PRICE_OF_VECTORS = 7.5
# the same in layers with many unknowns, where JᵀJ is not held: with half of it a fit takes ten times as many
# steps in trained layers (width 120, eight heads)
_PRICE_OF_WIDE_VECTORS = 14.0
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


def price_of_vectors(unknowns: int) -> float:
    """Queries in units of parameters over outputs."""
    return _PRICE_OF_WIDE_VECTORS if unknowns > MANY else PRICE_OF_VECTORS
