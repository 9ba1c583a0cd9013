"""Why was nothing recovered? A first look says what the target is, and whether its answers could have been
enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.answers import IDENTIFY, Clipped, Computed, Seen, Stored, Subject, Unsteady
from unsoftmax.answers.probabilities import probabilities
from unsoftmax.families import Family
from unsoftmax.first_look.look import FirstLook, first_look
from unsoftmax.float_formats import FloatFormat, decimals_of
from unsoftmax.learners import Known
from unsoftmax.learners.one_head.checks import REPEAT_TEST
from unsoftmax.ledger import Ledger
from unsoftmax.oracles.logits import Logits
from unsoftmax.outcomes import OutsideClass, Refutation, Status, Stop, Test, Unresolved
from unsoftmax.recovery.pooling import rows_alike

__all__ = [
    "FAMILY_TEST",
    "against_every_family",
    "by_batch",
    "explain",
    "no_learner",
    "rounded_vectors",
    "stay_probabilities",
]

FAMILY_TEST = Test("the first look finds a known family")
BATCH_TEST = Test("an answer does not depend on the other sequences of its batch")
_ROWS = 12  # single rows that show probabilities: attention with small values answers rows of both signs
_FAR = 1e3  # of these rows: a function that is not squashed leaves the interval
_NAMES = {Family.MULTI_HEAD: "several heads", Family.TRANSFORMER: "a network on top of attention"}


def explain(
    ledger: Ledger, known: Known, family: Family | None, status: Status, reason: str, rng: np.random.Generator
) -> tuple[Known, Status, str]:
    """What is known, the status and the reason of a failure, once a first look was taken (or was before)."""
    look = known.look if known.look is not None else first_look(ledger, rng, known.answers)
    seen = {finding.subject for finding in known.findings}
    more = tuple(finding for finding in look.findings if finding.subject not in seen)
    if look.finds_nothing and (alike := rows_alike(ledger, rng)) is not None:
        more = (*more, alike)
    known = replace(known, look=look, findings=(*known.findings, *more))
    if family is not None:
        return known, status, reason
    if ledger.outputs is None and (told := stay_probabilities(ledger, rng)) is not None:
        return known, told.status, f"{told.reason}; learning ended because the target {reason}"
    if ledger.outputs is not None and (told := rounded_vectors(ledger, rng)) is not None:
        return known, told.status, told.reason
    if (stop := no_learner(look)) is not None:
        return known, stop.status, stop.reason
    if status is Status.OUTSIDE_CLASS and look.beyond_these_answers:
        return (
            known,
            Status.UNRESOLVED,
            f"{look.beyond_these_answers}; learning ended because the target {reason}",
        )
    seen_against = against_every_family(look)
    if seen_against and (
        status is Status.OUTSIDE_CLASS or (status is Status.UNRESOLVED and look.finds_nothing)
    ):
        return known, Status.OUTSIDE_CLASS, Refutation(FAMILY_TEST, seen_against).sentence
    return known, status, reason


def against_every_family(look: FirstLook) -> str:
    """What the look saw that no family does; empty where it saw nothing of that."""
    if look.finds_nothing:
        return look.evidence(Subject.FAMILY)
    values = look.answers is None or look.answers.exact
    for subject, against in ((Subject.ORDER, Seen.MATTERS), (Subject.COPIES, Seen.COUNT)):
        if values and look.value(subject) == against:
            return look.evidence(subject)
    return ""


def stay_probabilities(ledger: Ledger, rng: np.random.Generator) -> Unresolved | None:
    """Why answers that lie between 0 and 1, those to long rows at its ends too, are not recovered; None for
    others."""
    rows = rng.standard_normal((_ROWS, 1, ledger.width))
    with ledger.phase(IDENTIFY):
        if ledger.input_bound is not None:
            rows *= ledger.input_bound / np.linalg.norm(rows, axis=2, keepdims=True)
        elif not ((far := ledger.ask(_FAR * rows[: _ROWS // 2])).min() >= 0.0 and far.max() <= 1.0):
            return None
        return probabilities(ledger.ask(rows))


def rounded_vectors(ledger: Ledger, rng: np.random.Generator) -> Unresolved | None:
    """Why vectors told in few decimals are not recovered; None for others."""
    rows = rng.standard_normal((_ROWS, 1, ledger.width))
    if ledger.input_bound is not None:
        rows *= ledger.input_bound / np.linalg.norm(rows, axis=2, keepdims=True)
    with ledger.phase(IDENTIFY):
        answers = ledger.ask(rows)
    decimals = ledger.oracle.decimals if isinstance(ledger.oracle, Logits) else decimals_of(answers)
    if decimals is None:
        return None
    return Unresolved(
        f"all answers have at most {decimals} decimals, and vectors are recovered from all digits; ask for "
        "unrounded answers, or for one number of each answer alone, which may be recovered from rounded ones"
    )


def by_batch(look: FirstLook) -> Stop | None:
    """How a run ends where a sequence is answered otherwise beside another one."""
    if look.value(Subject.BATCHES) != Seen.MATTER:
        return None
    return OutsideClass(BATCH_TEST, look.evidence(Subject.BATCHES))


def no_learner(look: FirstLook) -> Stop | None:
    """How a run ends, before more is spent, where these answers are not enough for what the look has
    found."""
    if (stop := by_batch(look)) is not None:
        return stop
    if look.answers is None or look.answers.exact:
        return None
    evidence = look.evidence(Subject.FAMILY)
    if isinstance(look.answers, Unsteady):
        return OutsideClass(REPEAT_TEST, look.evidence(Subject.ANSWERS))
    if look.finds_nothing:
        return OutsideClass(FAMILY_TEST, evidence)
    enough = {
        Family.MULTI_HEAD: isinstance(look.answers, Computed) or look.answers == Stored(FloatFormat.FLOAT32),
        Family.TRANSFORMER: isinstance(look.answers, Computed)
        or (isinstance(look.answers, Clipped) and look.answers.inner.exact),
    }
    if enough.get(look.guess or Family.SINGLE_HEAD, True):
        return None
    return Unresolved(
        f"the target looks like {_NAMES[look.family]} (answers: {look.value(Subject.ANSWERS)}; {evidence}), "
        "which can be recovered from exact answers, and from float32 arithmetic; ask a target without such "
        "errors"
    )
