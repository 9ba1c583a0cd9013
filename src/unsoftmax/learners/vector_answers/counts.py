"""What vector answers cost: one head, all heads at once, or overlapping heads through one readout."""

from __future__ import annotations

from dataclasses import replace

from unsoftmax.learners.claims import QueryCount, Size
from unsoftmax.learners.several_heads import MultiHeadLearner
from unsoftmax.learners.vector_answers.finish import MOST_UNKNOWNS, pairs_to_finish
from unsoftmax.learners.vector_answers.values_of_heads import pairs_for_values

__all__ = ["QUERIES", "usual_verification"]

_ATTEMPTS = 4  # on all heads at once, before a readout
_SPARE = 3  # columns that add nothing before a rank is believed
_FILLED = 0.75  # rows a query, as a part of what the smallest head can tell apart
_INNER = 1.25  # rows that show a head's span, as a multiple of its rank


def _value_ranks(size: Size) -> tuple[int, ...]:
    """Ranks of V; as in usual layers where they are not told."""
    if size.value_ranks:
        return size.value_ranks
    heads = max(1, size.heads)
    return (min(max(1, size.width // heads), size.outputs or 1),) * heads


def _overlaps(size: Size) -> bool:
    """Whether the heads' outputs share dimensions, so that they cannot be told apart in one answer."""
    ranks = _value_ranks(size)
    return len(ranks) > 1 and sum(ranks) > (size.outputs or 1)


def _scores(size: Size, rows: int, wanted: float, spare: int) -> int:
    """Queries for the scores at d + 1 asking rows: `rows` of a basis a query, until the rank is believed;
    then inside the span only."""
    d = size.width
    rank = min(d, size.rank + (1 if size.biased else 0))
    full = min(d + 1, rank + spare)
    return full * -(-d // rows) + (d + 1 - full) * -(-max(1, round(wanted * rank)) // rows) + 2


def _of_one_head(size: Size, spare: int) -> int:
    rows = max(1, min(size.outputs or 1, *_value_ranks(size)))
    return (size.width + 1) + _scores(size, rows, 1.0, spare)


def _of_all_at_once(size: Size, spare: int) -> int:
    d, heads, ranks = size.width, size.heads, _value_ranks(size)
    rows = max(1, int(_FILLED * min(ranks)))
    plateaus, outputs, again = 7 * heads + 4, max(d, sum(ranks)) + heads, sum(ranks) - min(ranks)
    return (d + 1) + plateaus + outputs + again + _scores(size, rows, _INNER, spare)


def _through_a_readout(size: Size, several: int) -> int:
    """`several`: what the heads cost as scalar answers. The attempts that failed before are paid, too."""
    d, heads = size.width, size.heads
    fails_early = (size.outputs or 1) < heads
    before = _ATTEMPTS * (27 * heads + 8) if fails_early else 7 * heads + 4 + max(d, sum(_value_ranks(size)))
    return (d + 1) + before + several + pairs_for_values(heads, d) + _finish(size)


def _finish(size: Size) -> int:
    """Pairs on which all parameters are corrected together, where they are not too many."""
    d, m = size.width, size.outputs or 1
    unknowns = size.heads * d * (d + int(size.biased) + m)
    return pairs_to_finish(unknowns, size.heads, d, m) if unknowns <= MOST_UNKNOWNS else 0


def _usual(size: Size) -> int:
    if size.heads <= 1:
        return _of_one_head(size, _SPARE + 1)
    if not _overlaps(size):
        return _of_all_at_once(size, _SPARE)
    return _through_a_readout(size, MultiHeadLearner().claim.queries.expected(replace(size, outputs=None)))


def _queries(size: Size) -> int:
    """At most: probes that saturate are asked again, attempts on all heads at once are repeated, and a
    readout comes last."""
    if size.heads <= 1:
        return 2 * _of_one_head(size, _SPARE + 2) + 40
    at_once = _ATTEMPTS * (2 * _of_all_at_once(size, _SPARE + 2) + 27 * size.heads + 40)
    return at_once + _through_a_readout(size, MultiHeadLearner().claim.queries(replace(size, outputs=None)))


def usual_verification(size: Size) -> int:
    """Checks, certificate and error bound; measured. Overlapping heads: 477 to 509 (two), 549 to 590
    (three)."""
    if size.heads <= 1:
        return 336 if size.biased else 288
    return (336 if _overlaps(size) else 286) + 72 * size.heads


QUERIES = QueryCount(
    "one head: d + 1, and (r + 4) ⌈d/m⌉ + (d - r) ⌈r/m⌉; several at once: the same with m/H outputs each, "
    "and 2m + 8H more; heads whose outputs overlap: as scalar answers, and 1.4 Hd + 1.6 Hd(d + m)/m more",
    "upper",
    _queries,
    _usual,
)
