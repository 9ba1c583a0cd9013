"""The bill, and the signs of progress while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["VERIFICATION", "Bill", "Progress"]

VERIFICATION = "verification"


@dataclass(frozen=True)
class Bill:
    """What was paid: sequences sent to the oracle, in all and by phase. Retries of an unreliable server are
    counted apart.

    >>> Bill(MappingProxyType({"values": 5, "verification": 3})).total
    8
    """

    by_phase: MappingProxyType[str, int] | dict[str, int] = field(default_factory=dict)
    retries: int = 0

    def __reduce__(self) -> tuple[type[Bill], tuple[dict[str, int], int]]:
        return Bill, (dict(self.by_phase), self.retries)  # a read-only view cannot be pickled

    @property
    def total(self) -> int:
        """All queries."""
        return sum(self.by_phase.values())

    @property
    def learning(self) -> int:
        """All queries but those of verification."""
        return self.total - self.by_phase.get(VERIFICATION, 0)


@dataclass(frozen=True)
class Progress:
    """Told after every batch: where the learner is, what is paid, and what it expects to pay in all (if
    known)."""

    phase: str
    paid: int
    expected: int | None
