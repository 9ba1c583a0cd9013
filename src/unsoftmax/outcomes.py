"""How learning can end. Learners stop early by raising a `Stop`; `recover` turns it into a status."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BudgetSpent", "NotIdentifiable", "OutsideClass", "Status", "Stop", "Unresolved"]


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


class Stop(Exception):
    """Learning ends here with `status`, because of `reason`. Never reaches the user as an exception."""

    status = Status.UNRESOLVED

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotIdentifiable(Stop):
    """Different parameters give this same function; the reason says which part is visible and which is
    not."""

    status = Status.NOT_IDENTIFIABLE


class OutsideClass(Stop):
    """The box is none of the known functions: `test` names the property that failed, `evidence` the
    figures."""

    status = Status.OUTSIDE_CLASS

    def __init__(self, test: str, evidence: str) -> None:
        super().__init__(f"failed the test '{test}': {evidence}")
        self.test = test


class Unresolved(Stop):
    """The family may fit, but not at this precision, input bound or effort; the reason says what would
    help."""

    status = Status.UNRESOLVED


class BudgetSpent(Stop):
    """The next batch would exceed the budget, so it was not sent."""

    status = Status.BUDGET_SPENT
