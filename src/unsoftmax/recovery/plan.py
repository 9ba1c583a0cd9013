"""`plan`: what a recovery will cost, before the first query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unsoftmax.learners import Claim, Learner, learner_for
from unsoftmax.oracles import check_width
from unsoftmax.recovery.targets import as_oracle

__all__ = ["Plan", "plan"]

VERIFICATION_QUERIES = 256  # at most, whatever the width: checks, certificate, error bound


@dataclass(frozen=True)
class Plan:
    """Queries by rank, because the rank shows only on the way. `by_rank` maps rank to queries without
    verification."""

    width: int
    family: str
    claim: Claim
    by_rank: dict[int, int]
    parameters: dict[int, int]
    verification: int
    paper: int
    otherwise: dict[str, str] = field(
        default_factory=dict
    )  # family -> query formula, should the box turn out to be of that one

    @property
    def at_most(self) -> int:
        """The whole bill in the worst case, for the family that the plan is made for."""
        return max(self.by_rank.values()) + self.verification

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "width": self.width,
            "family": self.family,
            "claim": {
                "title": self.claim.title,
                "source": self.claim.source,
                "queries": self.claim.queries.formula,
                "kind": self.claim.queries.kind,
                "assumptions": [{"text": each.text, "check": each.check} for each in self.claim.assumptions],
            },
            "by_rank": [
                {"rank": r, "parameters": self.parameters[r], "queries": n} for r, n in self.by_rank.items()
            ],
            "verification": self.verification,
            "at_most": self.at_most,
            "paper": self.paper,
            "otherwise": dict(self.otherwise),
        }


def plan(
    target: object, *, width: int | None = None, family: str = "auto", learner: Learner | None = None
) -> Plan:
    """What `recover` with the same arguments would cost. Asks nothing.

    >>> plan("demo:single-head?d=64").by_rank[8] < 1.2 * (64 + 8 * (2 * 64 - 8))
    True
    """
    oracle = as_oracle(target)
    d = check_width(width if width is not None else oracle.spec.width)
    chosen = learner if learner is not None else learner_for(family)
    ranks = sorted({r for r in (1, 2, 4, 8, 16, 32, 64, 128, d // 2, d) if 1 <= r <= d})
    return Plan(
        width=d,
        family=chosen.family,
        claim=chosen.claim,
        by_rank={r: chosen.claim.queries(d, r) for r in ranks},
        parameters={r: d + r * (2 * d - r) for r in ranks},
        verification=VERIFICATION_QUERIES,
        paper=d + d * d,
        otherwise={name: learner_for(name).claim.queries.formula for name in ("multi-head", "transformer")}
        if chosen.family == "auto"
        else {},
    )
