"""What is found out about a target on the way, with its evidence and its price."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["IDENTIFY", "Finding", "Seen", "Subject"]

IDENTIFY = "identify"  # the phase that findings are billed to


class Subject(StrEnum):
    """What findings are about."""

    WIDTH = "width"
    ANSWERS = "answers"
    RANGE = "range of answers"
    REPEATABILITY = "repeatability"
    BATCHES = "batches"
    CONSTANT = "constant"
    ORDER = "order of rows"
    ASKING = "row that asks"
    COPIES = "copies of a row"
    SINGLE_ROWS = "single rows"
    SKIP = "skip connection"
    QUERY_BIAS = "query bias"
    FAMILY = "family"


class Seen(StrEnum):
    """Values of findings that decide what is tried next."""

    RANDOM = "random"
    MATTERS = "matters"
    MATTER = "matter"  # of batches
    COUNT = "count"
    CURVED = "curved"
    PROBABILITIES = "probabilities"
    PRESENT = "present"
    NONE = "none"  # of the family: the target is none of those that are known
    UNKNOWN = "unknown"  # the look cannot tell
    CLASSES = "classes"
    ALIKE = "none: all rows are alike"  # of the row that asks


@dataclass(frozen=True)
class Finding:
    """Something found out about the target on the way: what it is about, what was found, what was seen, and
    what that cost.

    >>> Finding("answers", "exact", "full float64 answers on a line", 3).value
    'exact'
    """

    subject: str
    value: str
    evidence: str
    queries: int
