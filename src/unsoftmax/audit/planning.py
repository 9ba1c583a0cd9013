"""What the rest of an audit will cost, once the first look has told what kind of box it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners import Claim, Known
from unsoftmax.recovery.choose import choose
from unsoftmax.recovery.plan import Plan, plan_for

__all__ = ["AuditPlan", "cheapest", "checked_price", "duration", "make_plan", "money"]

_UNKNOWN: dict[str, str] = {
    Family.MULTI_HEAD: "the number of heads",
    Family.TRANSFORMER: "the number of neurons",
}


@dataclass(frozen=True)
class AuditPlan:
    """The plan for what is still to be asked, with what is already paid, its price and its duration.

    seconds_per_query: measured during the first look; None when those answers came from an earlier run's
    ledger.
    """

    family: str
    plan: Plan
    paid: int
    price_per_thousand: float | None
    seconds_per_query: float | None
    currency: str | None = None

    @property
    def claim(self) -> Claim:
        """The claim of the learner that the plan is made for."""
        return self.plan.claim

    @property
    def at_least(self) -> int:
        """Queries still to come for the smallest target in the plan, verification included."""
        return self.plan.at_least

    @property
    def at_most(self) -> int:
        """Queries still to come for the largest target in the plan, where the first attempt succeeds."""
        return self.plan.at_most_in_one_attempt

    def price(self, queries: int) -> float | None:
        """The price of so many queries; None without a price."""
        return None if self.price_per_thousand is None else self.price_per_thousand * queries / 1000.0

    def seconds(self, queries: int) -> float | None:
        """How long so many queries take at the measured rate."""
        return None if self.seconds_per_query is None else self.seconds_per_query * queries

    @property
    def sentence(self) -> str:
        """The plan for people."""
        total_low, total_high = self.paid + self.at_least, self.paid + self.at_most
        text = (
            f"{self.paid:,} queries are paid; the whole job takes about {total_low:,} to {total_high:,}, "
            f"depending on {_UNKNOWN.get(self.family, 'the rank')}"
        )
        if self.price_per_thousand is not None:
            low, high = (self.price_per_thousand * total / 1000.0 for total in (total_low, total_high))
            text += f", for {low:,.2f} to {money(high, self.currency)}"
        if self.seconds_per_query is not None:
            text += f", in up to {duration(self.seconds_per_query * self.at_most)} more"
        return text

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "family": self.family,
            "learner": self.claim.title,
            "formula": self.claim.queries.formula,
            "paid": self.paid,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "by_size": [cost.as_json() for cost in self.plan.costs],
            "price_per_thousand": self.price_per_thousand,
            "price_at_most": self.price(self.paid + self.at_most),
            "seconds_per_query": self.seconds_per_query,
            "seconds_at_most": self.seconds(self.at_most),
        }


def make_plan(
    known: Known,
    family: Family | None,
    width: int,
    paid: int,
    *,
    price_per_thousand: float | None = None,
    seconds_per_query: float | None = None,
    currency: str | None = None,
) -> AuditPlan:
    """The plan for the learner that is chosen by what the first look knows, and by what the user asks for."""
    learner = next(choose(known, family)).learner
    found = None if known.look is None else known.look.value("query bias")
    biased = {"present": True, "none": False}.get(found or "")
    planned = plan_for(learner, width, known.outputs, biased=biased)
    return AuditPlan(str(learner.family), planned, paid, price_per_thousand, seconds_per_query, currency)


def cheapest(width: int) -> int:
    """Fewer queries than any successful audit of this width has ever cost: one head of rank one, exact
    answers, no checks."""
    return 3 * width


def checked_price(price: float | None) -> float | None:
    """The price of a thousand queries, or a `UsageError`."""
    if price is not None and not 0.0 <= price < float("inf"):
        raise UsageError(f"the price of a thousand queries must be a number >= 0, not {price!r}")
    return price


def money(amount: float, currency: str | None) -> str:
    """A price for people.

    >>> money(1234.5, "EUR"), money(2.0, None)
    ('1,234.50 EUR', '2.00')
    """
    return f"{amount:,.2f}" + (f" {currency}" if currency else "")


def duration(seconds: float) -> str:
    """A time span for people.

    >>> duration(0.4), duration(90), duration(7200)
    ('a second', '1.5 minutes', '2.0 hours')
    """
    if seconds < 1.5:
        return "a second"
    for limit, unit, name in ((90.0, 1.0, "seconds"), (5400.0, 60.0, "minutes"), (129600.0, 3600.0, "hours")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}" if unit == 1.0 else f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86400.0:.1f} days"
