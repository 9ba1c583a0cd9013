"""When does an audit fail a pipeline?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from unsoftmax.audit.pipeline import Audit
from unsoftmax.errors import UsageError

__all__ = ["FailOn", "Judgement", "Policy"]

FailOn = Literal["recovered", "leak"]


@dataclass(frozen=True)
class Judgement:
    """Whether the policy is violated, and why."""

    violated: bool
    sentence: str

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Policy:
    """fail_on: 'recovered' for the whole model, 'leak' for a part as well. max_price: an attack that costs
    more does not count.

    >>> Policy("recovered", max_price=10.0).budget(price_per_thousand=2.0)
    5000
    """

    fail_on: FailOn
    max_price: float | None = None

    def budget(self, price_per_thousand: float | None) -> int | None:
        """How many queries the largest price buys; None without one."""
        if self.max_price is None:
            return None
        if not price_per_thousand:
            raise UsageError(
                f"max_price={self.max_price:g} needs the price of a thousand queries; pass "
                "price_per_thousand=PRICE"
            )
        return int(1000.0 * self.max_price / price_per_thousand)

    def judge(self, done: Audit) -> Judgement:
        """Whether what leaked for the price is what the policy forbids."""
        result = done.result
        leaked = "all parameters" if result.status.recovered else "parts" if result.parts else None
        counts = result.status.recovered or (self.fail_on == "leak" and bool(result.parts))
        bill = f"{result.queries.total:,} queries"
        if done.cost is not None:
            bill += f" at a price of {done.cost:,.2f}"
        if not counts:
            seen = f"{leaked} leaked, which this policy allows" if leaked else "nothing was recovered"
            return Judgement(False, f"passed: {seen}, for {bill}; that is not proof of safety")
        if self.max_price is not None and done.cost is not None and done.cost > self.max_price:
            return Judgement(False, f"passed: {leaked} leaked, but only for {bill}, above {self.max_price:g}")
        return Judgement(True, f"failed: {leaked} leaked for {bill}")
