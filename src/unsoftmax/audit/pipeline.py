"""The whole job: identify, plan, learn, certify, report. One ledger keeps every answer, so a stopped audit
goes on where it was."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from unsoftmax.answers import IDENTIFY, Finding, Subject
from unsoftmax.audit.findings import merge_findings
from unsoftmax.audit.learning_curve import LearningCurve, Recorder, learning_curve
from unsoftmax.audit.planning import AuditPlan, cheapest, checked_price, make_plan
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.first_look.asking import FirstLookAsker
from unsoftmax.first_look.look import FirstLook, take_look
from unsoftmax.html_tables import table
from unsoftmax.learners import Known
from unsoftmax.ledger import Ledger, read_statement
from unsoftmax.outcomes import BudgetSpent, Status, Stop
from unsoftmax.recovery.every_row import held_against_every_row
from unsoftmax.recovery.explain import no_learner
from unsoftmax.recovery.recover import Options, job_of, recover_from
from unsoftmax.recovery.result import Result

__all__ = ["Audit", "audit_target", "ledger_digest", "now"]

_BENT = (Family.TRANSFORMER, Family.ENCODER_BLOCK)  # families whose answers to single rows curve


@dataclass
class _Preparation:
    """What an audit does before a learner is chosen: a first look, the plan, and approval.

    approve: called once with the `AuditPlan`; False ends the run as BUDGET_SPENT, resumable with the same
    ledger.
    """

    family: Family | None
    price_per_thousand: float | None
    currency: str | None
    approve: Callable[[AuditPlan], bool]
    look: FirstLook | None = None
    plan: AuditPlan | None = None
    approved: bool = True

    def __call__(self, ledger: Ledger, known: Known, rng: np.random.Generator) -> tuple[Known, Stop | None]:
        started = time.perf_counter()
        asker = FirstLookAsker(ledger, rng)
        before = next((finding for finding in known.findings if finding.subject == Subject.ANSWERS), None)
        try:
            look = take_look(asker, known.answers, "" if before is None else before.evidence)
        except Stop as stop:  # what it had found until then was paid for
            return replace(known, findings=_with_price(tuple(asker.findings), before)), stop
        self.look = look = replace(look, findings=_with_price(look.findings, before))
        known = replace(known, look=look, findings=look.findings)
        if self.family is None and (ending := no_learner(look)) is not None:
            return known, ending
        paid = ledger.bill.total
        rate = None if ledger.only_replayed else (time.perf_counter() - started) / max(paid, 1)
        self.plan = plan = make_plan(
            replace(known, bends=known.bends or (known.exact and look.guess in _BENT)),
            self.family,
            ledger.width,
            paid,
            price_per_thousand=self.price_per_thousand,
            currency=self.currency,
            seconds_per_query=rate,
        )
        self.approved = self.approve(plan)
        if not self.approved:
            return known, BudgetSpent(f"{plan.sentence}; that was not approved, so nothing more was asked")
        return known, None


def _latest(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """One finding a subject, the last one, with the price of all of them: answers that are looked at again
    are told once."""
    found: dict[str, Finding] = {}
    for each in findings:
        paid = found[each.subject].queries if each.subject in found else 0
        found[each.subject] = replace(each, queries=each.queries + paid)
    return tuple(found.values())


def _with_price(findings: tuple[Finding, ...], answers: Finding | None) -> tuple[Finding, ...]:
    """The findings, with what it took to find out what kind of answers these are."""
    if answers is None:
        return findings
    return tuple(
        replace(each, queries=each.queries + answers.queries) if each.subject == answers.subject else each
        for each in findings
    )


def now() -> str:
    """The moment in UTC, to the second, as 2026-01-31T12:00:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, repr=False)
class Audit:
    """Everything an audit found, for `write_report` or for reading.

    >>> import unsoftmax
    >>> done = unsoftmax.audit_target("demo:single-head?d=6&r=2", price_per_thousand=2.0)
    >>> str(done.result.status), done.result.model.rank, done.cost == 2.0 * done.result.queries.total / 1000
    ('EXACT', 2, True)
    """

    target: str
    result: Result
    plan: AuditPlan | None
    findings: tuple[Finding, ...]
    curve: LearningCurve
    seed: int
    price_per_thousand: float | None
    seconds: float
    ledger_digest: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    defences: Any = None
    currency: str | None = None
    date: str = field(default_factory=now)
    approved: bool = True  # False: the plan was refused, and nothing more was asked

    def __repr__(self) -> str:
        return f"Audit({self.target}, {self.result!r}, {len(self.findings)} findings)"

    @property
    def cost(self) -> float | None:
        """The price of all queries; None without a price."""
        return (
            None
            if self.price_per_thousand is None
            else self.price_per_thousand * self.result.queries.total / 1000.0
        )

    @property
    def learner_begun(self) -> bool:
        """Whether a learner was chosen or asked anything; a first look that ended the audit began none."""
        return self.plan is not None or any(phase != IDENTIFY for phase in self.result.queries.by_phase)

    def _repr_html_(self) -> str:
        """The result and the findings as tables, for notebooks."""
        rows = [(each.subject, each.value, each.evidence, each.queries) for each in self.findings]
        return self.result._repr_html_() + table(["about", "found", "evidence", "queries"], rows)


def audit_target(
    target: object,
    *,
    price_per_thousand: float | None = None,
    currency: str | None = None,
    confirm_above: int | None = None,
    confirm: Callable[[str], bool] | None = None,
    on_plan: Callable[[AuditPlan], None] | None = None,
    **options: Unpack[Options],
) -> Audit:
    """Identifies the target, recovers it, proves it, and keeps what the report needs. options: those of
    `recover` (width, budget, seed, ledger, row, readout, vocabulary, ...), all optional.

    price_per_thousand: the price of a thousand queries, in `currency` (any word). confirm_above: before more
    queries than this are sent, in all, `confirm` is called with the plan in words; without `confirm`, or when
    it says no, the audit ends as BUDGET_SPENT. on_plan: called with the plan. With the same ledger, an audit
    that was stopped at any step goes on without paying anything twice.

    >>> import unsoftmax
    >>> done = unsoftmax.audit_target("demo:single-head?d=4&biases=1")
    >>> {finding.subject: finding.value for finding in done.findings}["answers"]
    'exact'
    """
    price, job = checked_price(price_per_thousand), job_of(**options)
    if confirm_above is not None and (
        isinstance(confirm_above, bool) or not isinstance(confirm_above, int) or confirm_above < 0
    ):
        raise UsageError(f"confirm_above must be a whole number of queries >= 0, not {confirm_above!r}")
    every_row = job.row == "all"
    job = replace(job, row="last") if every_row else job
    oracle = job.oracle(target)
    gate = _Gate(confirm_above, confirm)
    told = job.width if job.width is not None else oracle.spec.width
    if isinstance(told, int) and told > 0:
        gate.before_the_first_query(cheapest(told))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place: str | Path | None = job.ledger
        if place is None and confirm_above is not None:  # a run that is stopped to ask must be able to go on
            place = Path(folder) / "audit.ledger"
        while True:
            limited = not gate.open
            preparation = _Preparation(job.family, price, currency, gate.approves(on_plan))
            recorder = Recorder()
            result = recover_from(
                oracle,
                replace(job, budget=gate.limit(job.budget), ledger=place, row=None, readout=None),
                preparation,
                "audit",
                recorder,
            )
            if result.status is not Status.BUDGET_SPENT or not limited or not gate.may_go_on(result):
                break
            on_plan = None
        digest = None if place is None else ledger_digest(place)
    if every_row:
        longest = job.frame.longest
        result = held_against_every_row(result, oracle, int(job.seed), job.input_bound, longest)
    look = preparation.look
    curve = LearningCurve(why_not="nothing was recovered")
    if result.model is not None:
        curve = learning_curve(recorder, result.model, None if look is None else look.answers)
    # a first look that was stopped has found something too
    findings = merge_findings(result.findings if look is None else _latest(result.findings), result)
    name = target if isinstance(target, str) else oracle.spec.name
    return Audit(
        target=str(name),
        result=replace(result, findings=findings),
        plan=preparation.plan,
        findings=findings,
        curve=curve,
        seed=job.seed,
        price_per_thousand=price,
        seconds=time.perf_counter() - started,
        ledger_digest=digest,
        options=_as_told(options),
        currency=currency,
        approved=preparation.approved,
    )


def _as_told(options: Options) -> dict[str, Any]:
    """The options that a report repeats: what they were, without arrays, functions and the place of the
    ledger."""
    elsewhere = ("seed", "ledger", "progress")
    told = ((name, value) for name, value in options.items() if name not in elsewhere)
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in told}
    return {"family": "auto"} | {k: v for k, v in plain.items() if isinstance(v, str | int | float)}


def ledger_digest(path: str | Path) -> str | None:
    """The digest of everything that a ledger holds: equal for equal runs, whatever their time."""
    return read_statement(path).digest if Path(path).is_file() else None


class _Gate:
    """Asks before more than so many queries are sent; once is enough."""

    def __init__(self, above: int | None, confirm: Callable[[str], bool] | None) -> None:
        self.above, self.confirm, self.open, self.refused = above, confirm, above is None, False

    def before_the_first_query(self, fewest: int) -> None:
        """When even the cheapest outcome exceeds the limit, ask at once, with nothing paid."""
        if not self.open and self.above is not None and fewest > self.above:
            self._ask(f"no audit of this width takes fewer than {fewest:,} queries")
            if not self.open:
                raise UsageError(
                    f"no audit of this width takes fewer than {fewest:,} queries, more than the "
                    f"{self.above:,} allowed without confirmation; nothing was asked. Raise confirm_above "
                    "(--confirm-above), or confirm (--yes)"
                )

    def approves(self, on_plan: Callable[[AuditPlan], None] | None) -> Callable[[AuditPlan], bool]:
        def approve(plan: AuditPlan) -> bool:
            if on_plan is not None:
                on_plan(plan)
            if not self.open and self.above is not None and plan.paid + plan.at_most > self.above:
                self._ask(plan.sentence)
                return self.open
            return True

        return approve

    def limit(self, budget: int | None) -> int | None:
        """The budget, and until confirmation never more than the limit."""
        if self.open or self.above is None:
            return budget
        return self.above if budget is None else min(budget, self.above)

    def may_go_on(self, result: Result) -> bool:
        """After the limit stopped a run: was it confirmed meanwhile, or, when no plan foresaw it (more heads,
        say), is it now?"""
        if not self.open and not self.refused:
            self._ask(result.reason.removesuffix("; raise the budget"))
        return self.open

    def _ask(self, text: str) -> None:
        self.open = self.confirm is not None and self.confirm(text)
        self.refused = not self.open
