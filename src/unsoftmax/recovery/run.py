"""A recovery on an open ledger: learn, judge, and where that fails, look closer and say why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.answers import IDENTIFY, Answers, Computed, Finding, identify
from unsoftmax.answers.cast_rows import refuse_rounded_rows
from unsoftmax.answers.identify import identify_cast_rows
from unsoftmax.certify.sample import length_class
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.families import Family
from unsoftmax.learners import Claim, Known, Learner
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.ledger import Ledger
from unsoftmax.oracles.domain import Space
from unsoftmax.outcomes import Status, Stop, UnresolvedByAny
from unsoftmax.recovery.attempt import Attempt, Outcome, Prepare, Streams, overflow_in_float16
from unsoftmax.recovery.choose import choose
from unsoftmax.recovery.explain import explain
from unsoftmax.recovery.first_row import asked_by_first_row, reverse_for_first_row
from unsoftmax.recovery.result import Result
from unsoftmax.recovery.skip import look_for_skip

__all__ = ["run"]


def run(
    ledger: Ledger,
    told: Known,
    family: Family | None,
    learner: Learner | None,
    seed: int,
    prepare: Prepare | None = None,
) -> Result:
    """Learns and judges; where that fails, once more by a full identification of the answers; where that
    fails too, a first look says what the target is.

    told: what the user says. family: what the user asks for, None to find out. learner: one that the user
    chose, which is not replaced. prepare: what else to find out before learning, which steers no choice.
    """
    known = replace(told, domain=ledger.domain, outputs=ledger.outputs, max_length=ledger.max_length)
    streams = Streams(seed)
    if learner is not None:
        return _result(ledger, Attempt(ledger, known, family, streams).with_learner(learner), family)
    try:
        return _run(ledger, told, known, family, seed, prepare)
    except NonFiniteAnswers as fault:
        stop = overflow_in_float16(ledger, fault)
        return _result(ledger, Outcome(known, stop.status, stop.reason), family)


def _run(
    ledger: Ledger, told: Known, known: Known, family: Family | None, seed: int, prepare: Prepare | None
) -> Result:
    """The same with the learners that `choose` names. known: what the user and the ledger say."""
    streams = Streams(seed)
    outcome = _tried(ledger, known, family, streams, prepare)
    if outcome.failed and family in (None, Family.SINGLE_HEAD, Family.MULTI_HEAD):
        seen = reverse_for_first_row(ledger, outcome.known, streams(8))
        if seen is not None:
            return _of_first_row(run(ledger, told, family, None, seed, prepare), seen)
    rounds = isinstance(outcome.known.answers, Computed)  # a first look takes lines for exact ones
    if outcome.failed and isinstance(ledger.domain, Space) and not rounds:
        outcome = _explained(ledger, outcome, family, streams(5))
    if family is None and _taken_for_one_head(outcome):
        outcome = _as_several_heads(ledger, outcome, streams)
    return _result(ledger, outcome, family)


def _tried(
    ledger: Ledger, known: Known, family: Family | None, streams: Streams, prepare: Prepare | None
) -> Outcome:
    """The attempts before a failure is explained."""
    outcome = Attempt(ledger, known, family, streams).run(prepare)
    if outcome.failed and not (outcome.known.told or outcome.known.identified):
        outcome = _reconsidered(ledger, outcome, family, streams)
    if outcome.failed and family in (None, Family.SINGLE_HEAD, Family.MULTI_HEAD):
        outcome = _beside_a_skip(ledger, outcome, family, streams)
    return outcome


def _of_first_row(result: Result, seen: Finding) -> Result:
    """What was learnt from reversed rows, of the target as the user knows it."""
    model = asked_by_first_row(result.model)
    result = replace(result, model=model, findings=(seen, *result.findings))
    if model is not None or not result.status.recovered:
        return result if model is None else replace(result, family=model.family)
    return replace(
        result,
        status=Status.UNRESOLVED,
        error_bound=None,
        reason=f"the first row asks, and the model found with rows in reverse is a {result.family}, which no "
        "model here is with its first row asking; send the rows in reverse",
    )


def _reconsidered(ledger: Ledger, first: Outcome, family: Family | None, streams: Streams) -> Outcome:
    """The answers looked exact, and no learner for exact ones succeeded: what does an identification say?"""
    try:
        look = identify if ledger.outputs is None else identify_cast_rows
        found = look(ledger, streams(1, 1))
        if found is not None:
            with ledger.phase(IDENTIFY):
                refuse_rounded_rows(ledger, found.answers, streams(7, 1))
    except Stop as stop:
        return first.ended_by(stop)
    if found is None or _same_rounding(first.known.answers, found.answers):
        return first
    known = replace(
        first.known.with_answers(found.answers, found.finding), identified=True, bends=found.bends
    )
    if known.exact:
        return replace(first, known=known)
    return Attempt(ledger, replace(known, refuted=(), look=None), family, streams, 1).run()


def _same_rounding(before: Answers | None, found: Answers) -> bool:
    """Whether every step was known to round, and to the format that is found again."""
    return isinstance(before, Computed) and isinstance(found, Computed) and before.format is found.format


def _beside_a_skip(ledger: Ledger, first: Outcome, family: Family | None, streams: Streams) -> Outcome:
    """Attention beside a skip connection: once more on the answers without it, where there is one."""
    try:
        known = look_for_skip(ledger, first.known, streams(6))
    except Stop as stop:
        return first.ended_by(stop)
    return first if known is first.known else Attempt(ledger, known, family, streams, 2).run()


def _explained(ledger: Ledger, outcome: Outcome, family: Family | None, rng: np.random.Generator) -> Outcome:
    """The same outcome, with what a first look says of the target; a look that is stopped says nothing, and a
    reason that rules out every learner stays."""
    try:
        known, status, reason = explain(ledger, outcome.known, family, outcome.status, outcome.reason, rng)
    except Stop:
        return outcome
    if isinstance(outcome.stop, UnresolvedByAny):
        return replace(outcome, known=known)
    return replace(outcome, known=known, status=status, reason=reason)


def _taken_for_one_head(outcome: Outcome) -> bool:
    """Whether one head was learnt that fresh answers contradict, where the first look finds several, or two
    rows show it: rows of one column, and heads that are nearly alike, leave a learner little to test."""
    look, verdict, learner = outcome.known.look, outcome.verdict, outcome.learner
    if outcome.status is not Status.OUTSIDE_CLASS or outcome.known.outputs is not None:
        return False
    if learner is None or learner.family is not Family.SINGLE_HEAD:
        return False
    if look is not None and look.guess is Family.MULTI_HEAD:
        return True
    return verdict is not None and verdict.certificate.by_kind.get(length_class(2), 0.0) > (
        verdict.certificate.allowed
    )


def _as_several_heads(ledger: Ledger, first: Outcome, streams: Streams) -> Outcome:
    """Once more with a learner of several heads, where there is one for such answers."""
    known = replace(first.known, look=None, refuted=())
    second = Attempt(ledger, known, Family.MULTI_HEAD, streams, 3).run()
    if second.learner is None:
        return first
    return second if second.status.recovered or second.status is Status.UNRESOLVED else first


def _result(ledger: Ledger, outcome: Outcome, family: Family | None) -> Result:
    learned, verdict, status = outcome.learned, outcome.verdict, outcome.status
    return Result(
        status=status,
        reason=outcome.reason,
        queries=ledger.bill,
        family=str(family or "auto") if learned is None else learned.model.family,
        width=ledger.width,
        claim=_claim(outcome, family),
        model=learned.model if learned is not None and status.recovered else None,
        certificate=None if verdict is None else verdict.certificate,
        error_bound=None if verdict is None else verdict.error_bound,
        constant_bound=None if learned is None else learned.constant_bound,
        findings=outcome.known.findings,
        parts=outcome.parts,
        answers=outcome.known.answers,
        vectors=ledger.outputs is not None,
    )


def _claim(outcome: Outcome, family: Family | None) -> Claim:
    """That of the learner that made the model, or that was tried last, or that would have been the first."""
    if outcome.learned is not None:
        return outcome.learned.claim
    if outcome.learner is not None:
        return outcome.learner.claim
    try:
        return next(choose(outcome.known, family)).learner.claim
    except Stop:
        return SingleHeadLearner().claim
