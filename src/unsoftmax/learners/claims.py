"""What a learner promises, as data: where it comes from, what it assumes and checks, what it costs, what it
recovers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Assumption", "Claim", "QueryCount"]


@dataclass(frozen=True)
class Assumption:
    """A condition on the target, and the check that tests it."""

    text: str
    check: str


@dataclass(frozen=True)
class QueryCount:
    """Number of queries without verification: a formula for people, a function of (width, rank) for machines.

    >>> QueryCount("d + d^2", "exact", lambda d, r: d + d * d)(4, 4)
    20
    """

    formula: str
    kind: Literal["exact", "upper"]
    count: Callable[[int, int], int]

    def __call__(self, width: int, rank: int) -> int:
        return self.count(width, rank)

    def holds(self, billed: int, width: int, rank: int) -> bool:
        """Whether a billed count agrees with the claim: equal for exact ones, at most for upper ones."""
        claimed = self(width, rank)
        return billed == claimed if self.kind == "exact" else billed <= claimed


@dataclass(frozen=True)
class Claim:
    """A theorem as data."""

    title: str
    source: str
    assumptions: tuple[Assumption, ...]
    queries: QueryCount
    recovers: str
    symmetry: str
    departs: str = "nothing"
