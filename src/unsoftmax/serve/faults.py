"""Everything that goes wrong with real servers, on request."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, fields
from enum import StrEnum

from unsoftmax.errors import UsageError

__all__ = ["Fault", "FaultPlan", "Faults"]


class Fault(StrEnum):
    """What goes wrong with one request."""

    UNAVAILABLE = "unavailable"
    DROP = "drop"
    SLOW = "slow"
    ERROR = "error"
    NULL = "null"
    NAN = "nan"
    SHAPE = "shape"


@dataclass(frozen=True)
class Faults:
    """Shares of requests that go wrong, from 0 to 1.

    unavailable: 503. drop: the connection ends without an answer. slow: the answer comes after
    `slow_seconds`. error: 500. null, nan, shape: status 200 with something that is not an answer. die_after:
    after so many answered requests the server is gone for good. seed: which requests.

    >>> Faults(unavailable=0.5).drop
    0.0
    """

    unavailable: float = 0.0
    drop: float = 0.0
    slow: float = 0.0
    error: float = 0.0
    null: float = 0.0
    nan: float = 0.0
    shape: float = 0.0
    slow_seconds: float = 0.2
    die_after: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        shares = [getattr(self, kind) for kind in Fault]
        if not all(0.0 <= share <= 1.0 for share in shares) or sum(shares) > 1.0:
            raise UsageError(
                "the shares of faults must be between 0 and 1, and 1 at most in all, not "
                "{str(kind): share for kind, share in zip(Fault, shares, strict=True)}"
            )

    @classmethod
    def parse(cls, texts: list[str]) -> Faults:
        """From texts such as 'unavailable=0.15'.

        >>> Faults.parse(["drop=0.05", "die_after=100"]).die_after
        100
        """
        kinds = {field.name: field for field in fields(cls)}
        values: dict[str, float | int] = {}
        for text in texts:
            name, _, value = text.partition("=")
            if name not in kinds:
                raise UsageError(f"there is no fault {name!r}; choose from {', '.join(kinds)}")
            try:
                values[name] = int(value) if name in ("die_after", "seed") else float(value)
            except ValueError:
                raise UsageError(
                    f"the fault {text!r} needs a number; write for instance {name}=0.05"
                ) from None
        return cls(**values)  # type: ignore[arg-type]


class FaultPlan:
    """Decides, request by request; safe for several threads."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._random = random.Random(faults.seed)  # noqa: S311 - no secret depends on it
        self._lock = threading.Lock()

    def draw(self) -> Fault | None:
        """The fault of this request, if any."""
        with self._lock:
            point = self._random.random()
        for kind in Fault:
            point -= getattr(self.faults, kind)
            if point < 0.0:
                return kind
        return None
