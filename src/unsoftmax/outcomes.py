"""How learning can end. Learners stop early by raising a `Stop`; `recover` turns it into a status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from unsoftmax.families import EVERY_FAMILY, Family

__all__ = [
    "BudgetSpent",
    "NotIdentifiable",
    "OutsideClass",
    "Refutation",
    "Status",
    "Stop",
    "Test",
    "Unresolved",
    "UnresolvedByAny",
]


class Status(StrEnum):
    """Outcome of a recovery.

    >>> Status.EXACT.recovered, Status.OUTSIDE_CLASS.recovered
    (True, False)
    """

    EXACT = "EXACT"
    WITHIN_BOUND = "WITHIN_BOUND"
    NOT_IDENTIFIABLE = "NOT_IDENTIFIABLE"
    OUTSIDE_CLASS = "OUTSIDE_CLASS"
    UNRESOLVED = "UNRESOLVED"
    BUDGET_SPENT = "BUDGET_SPENT"

    @property
    def recovered(self) -> bool:
        """Whether a certified model comes with this status."""
        return self in (Status.EXACT, Status.WITHIN_BOUND)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Test:
    """A property that every function of some families has. rules_out: the families that a failure excludes.

    >>> Test("one-row answers are affine", frozenset({Family.SINGLE_HEAD})).rules_out
    frozenset({<Family.SINGLE_HEAD: 'single-head'>})
    """

    __test__ = False  # not a case for pytest

    name: str
    rules_out: frozenset[Family] = EVERY_FAMILY

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Refutation:
    """A test that failed, and what was seen. The sentence is for people; code reads `test`."""

    test: Test
    seen: str

    @property
    def sentence(self) -> str:
        """The refutation in words."""
        return f"failed the test '{self.test}': {self.seen}"


class Stop(Exception):
    """Learning ends here with `status`, because of `reason`. Never reaches the user as an exception."""

    status = Status.UNRESOLVED

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.parts: Mapping[str, Any] = {}  # what was recovered although the whole was not, by name

    def with_parts(self, parts: Mapping[str, Any]) -> Self:
        """The same stop, with what was recovered until then."""
        self.parts = parts
        return self


class NotIdentifiable(Stop):
    """Different parameters give this same function; the reason says which part is visible and which is
    not."""

    status = Status.NOT_IDENTIFIABLE


class OutsideClass(Stop):
    """The target is not in the family: `refutation` says which property failed, and on what evidence."""

    status = Status.OUTSIDE_CLASS

    def __init__(self, test: Test, seen: str) -> None:
        self.refutation = Refutation(test, seen)
        super().__init__(self.refutation.sentence)

    @property
    def test(self) -> Test:
        """The property that failed."""
        return self.refutation.test


class Unresolved(Stop):
    """The family may fit, but not at this precision, input bound or effort; the reason says what would
    help."""

    status = Status.UNRESOLVED


class UnresolvedByAny(Stop):
    """As `Unresolved`, and no other learner would do better: what stands in the way is known for certain."""

    status = Status.UNRESOLVED


class BudgetSpent(Stop):
    """The next batch would exceed the budget, so it was not sent."""

    status = Status.BUDGET_SPENT
