"""What is found out about a target on the way, with its evidence and its price."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IDENTIFY", "Finding"]

IDENTIFY = "identify"  # the phase that findings are billed to


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
