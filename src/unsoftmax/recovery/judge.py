"""Which status the evidence allows: fresh answers are compared with the model by the ruler of the answers.

A learner brings a model and a bound. The judge takes the ruler from the kind of answers, measures where it
can, and lets no learner grade itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.answers import Answers, Clipped, Computed, Stored
from unsoftmax.arrays import Array
from unsoftmax.certify import (
    AnswersOff,
    Certificate,
    Shown,
    certify,
    error_bound,
    left_open,
    rounding_in_answers,
    rounding_limit,
    usual_chances,
)
from unsoftmax.certify.sample import OwnSequences
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners import Learned
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.outcomes import Refutation, Status, Test, Unresolved
from unsoftmax.recovery.evidence import PARTS, SLACK, Evidence, lengths_disagree, smaller
from unsoftmax.recovery.stated_bound import (
    USEFUL,
    beside_constant,
    check_stated_bound,
    check_stated_groups,
    stated_bound,
    tolerance_of,
)

__all__ = ["Verdict", "judge"]

CERTIFICATE_TEST = Test("fresh sequences are answered as the model predicts")
_ALIKE = 1e-6  # distance of heads, relative to W, down to which they are told apart
# The largest deviation that one head left of two on rows of norm 1 was 7e-9; larger ones are seen as two.
_HIDDEN = 1e-7
_SHORTER = 0.01  # of the longest rows inside the limits: a constant near a limit leaves so much, hardly less
_NOT_OVER = 0.25  # of the same, where the learner says nothing: a readout of half its size does not overflow
_ROUGH = 0.01  # relative error from which a bound is raised to what fresh answers could have shown
_TOKENS = 4.0  # rows over √d: no certificate of a layer looks at tokens alone


@dataclass(frozen=True)
class Verdict:
    """How a recovery ended, and the evidence."""

    status: Status
    reason: str
    certificate: Certificate
    error_bound: float | None


def judge(
    asker: Asker,
    learned: Learned,
    answers: Answers,
    learning: np.random.Generator,
    checking: np.random.Generator,
    sequences: Array | None = None,
) -> Verdict:
    """The status that fresh queries allow. Raises `OutsideClass` where they contradict the learner's bound.

    sequences: the user's own, on which the certificate compares as well.
    """
    view = _view(asker, learned, answers)
    sharp, claimed = 0.0, Shown()
    _refuse_without_readout(learned.model)
    if not answers.exact and stated_bound(learned) is None:
        learned = replace(learned, error_bound=_bound(view, learned, answers, checking))
    own = stated_bound(learned)
    if own is not None and not answers.exact:
        sharp = check_stated_bound(view, learned, own, answers, learning)
    if own is not None and own <= USEFUL and not (answers.exact and own <= learned.model.exact_at):
        claimed = check_stated_groups(view, learned, own, answers, learning)
    shown = sharp if sharp > 0.0 else claimed.could  # sharp sequences tell more, where there are any
    exact_at = learned.model.exact_at
    certificate = certify(
        view,
        learned.model,
        checking,
        allowed=max(exact_at if own is None else max(exact_at, 2.0 * min(own, USEFUL)), answers.rounding),
        answers_off=AnswersOff(
            tolerance_of(answers, learned),
            answers.deviation,
            answers.repeats,
            shown,
            beside_constant(answers, learned.model),
            answers if isinstance(answers, Computed) else None,
        ),
        caveat=learned.caveat,
        own=None if sequences is None else OwnSequences(sequences),
    )
    wrong = not certificate.passed and certificate.max_relative_error > USEFUL
    bound = None if wrong else _bound(view, learned, answers, checking)
    if bound is not None and own is not None and not answers.exact:
        # no bound is below what the answers could have shown
        bound = max(bound, shown, claimed.could if own >= _ROUGH else 0.0)
    if bound is not None:
        bound = max(bound, claimed.did)
    explained = in_answers = np.inf
    if own is None and answers.exact:
        explained, in_answers = (
            max(SLACK * limit, learned.bound_at_least)
            for limit in (
                rounding_limit(learned.model, view.input_bound),
                rounding_in_answers(learned.model, view.input_bound),
            )
        )
    elif own is not None:
        explained = max(exact_at if answers.exact else 0.0, SLACK * max(own, bound or 0.0))
    usual, by_chance = usual_chances(learned.model)
    measured = bound
    evidence = Evidence(certificate, explained, in_answers, usual, by_chance, answers.exact)
    visible = evidence.raises(smaller(bound, learned.answers_bound))
    bound = evidence.raises(bound)
    if answers.exact and lengths_disagree(certificate, explained, min(usual * (measured or 0.0), exact_at)):
        bound = visible = None
    limits = _Limits(explained, exact_at if answers.exact else 0.0, view.input_bound)
    if answers.exact and (visible is None or visible > exact_at):
        # heads that hardly differ, or rows that are short, leave more open
        left = left_open(view, learned.model)
        limits = replace(
            limits, nearly=_nearly(certificate, max(explained / SLACK, left)), left_open=SLACK * left
        )
    status, reason = _status(certificate, visible, limits)
    if status is Status.WITHIN_BOUND and bound is not None and visible is not None:
        certificate = _restated(certificate, visible)
        reason = f"the parameters are known to a relative error of {bound:.1g}; {certificate.statement}"
    if status is Status.OUTSIDE_CLASS and certificate.max_relative_error <= 10.0 * answers.rounding:
        status = Status.UNRESOLVED  # as near as rounding brings another model of the same family
    if status is Status.OUTSIDE_CLASS and answers.exact:
        alike = _closest_heads(learned.model, certificate, view.input_bound)
        if alike is not None:
            status = Status.UNRESOLVED
            reason = (
                f"{certificate.statement}; heads that are closer than {alike:.1g}, relative to W, may have "
                "been given as one"
            )
    if learned.note and status.recovered:
        reason = f"{learned.note}; {reason}"
    return Verdict(status, reason, certificate, bound)


def _nearly(certificate: Certificate, rounding: float) -> float:
    """How many times further than rounding explains a bound may go that only says how little is known: any
    number of times where no fresh answer needs an error of the parameters beyond rounding, some where most
    need none. rounding: the error that it usually accounts for."""
    if max(certificate.usually_off.values()) > rounding:
        return 1.0
    return np.inf if max(certificate.parameters_off, certificate.scores_off) <= rounding else SLACK


def _view(asker: Asker, learned: Learned, answers: Answers) -> Asker:
    """Rows that stay inside the target's limits, where it has some. The learner says how long they are, and
    is believed as far as the limits explain it: much shorter rows would show nothing of the scores."""
    if isinstance(answers, Computed) and answers.format is FloatFormat.FLOAT16 and learned.within is not None:
        return asker.within(max(learned.within, _TOKENS * float(np.sqrt(asker.width))))
    largest = _largest_answer(answers)
    size = float(np.linalg.norm([np.linalg.norm(part) for part in _readouts(learned.model)]))
    if largest is None or size == 0.0 or (learned.within is None and isinstance(answers, Clipped)):
        return asker
    within = _NOT_OVER * largest / size if learned.within is None else learned.within
    return asker.within(max(within, _SHORTER * largest / size))


def _largest_answer(answers: Answers) -> float | None:
    """The size that answers stop at, or overflow at; None where they do neither."""
    match answers:
        case Clipped():
            ends = [abs(end) for end in answers.limits or () if np.isfinite(end)]
            return min(ends, default=None)
        case Stored(format=FloatFormat.FLOAT16):
            return float(np.finfo(np.float16).max)
        case _:
            return None


def _readouts(model: Model) -> list[Array]:
    match model:
        case SingleHead():
            return [model.v]
        case MultiHead():
            return [head.v for head in model.heads]
        case _:
            return []


def _closest_heads(model: Model, certificate: Certificate, input_bound: float | None) -> float | None:
    """The distance of heads that no learner tells apart and that explain what is wrong, if any do. On short
    rows even one head may be two, which differ from it by an eighth of the square of their distance."""
    seen = certificate.max_relative_error
    if isinstance(model, MultiHead) and seen <= _ALIKE:
        return _ALIKE
    short = isinstance(model, SingleHead) and input_bound is not None
    return float(np.sqrt(32.0 * seen)) if short and seen <= _HIDDEN else None


def _restated(certificate: Certificate, bound: float) -> Certificate:
    """What the certificate says of a model whose parameters are known to this bound only."""
    allowed = max(certificate.allowed, PARTS * bound)
    beside = (
        certificate.own_rounding if certificate.passed else None
    )  # more than rounding explains is no match
    return replace(certificate, allowed=allowed, passed=True, failed=None, own_rounding=beside)


def _bound(asker: Asker, learned: Learned, answers: Answers, rng: np.random.Generator) -> float | None:
    """The learner's bound where answers carry errors; measured where they are exact."""
    own = learned.error_bound
    measured = error_bound(asker, learned.model, rng) if own is None or answers.exact else None
    known = [each for each in (own, measured) if each is not None]
    return max(*known, learned.bound_at_least) if known else None


def _refuse_without_readout(model: Model) -> None:
    if any(not part.any() for part in _readouts(model)):
        raise Unresolved(
            "the model has a readout of zeros, and no answer tells anything of its other parameters"
        )


@dataclass(frozen=True)
class _Limits:
    """explained: the error of parameters that the answers' own errors account for. exact: relative error up
    to which a model is exact; 0 behind errors. left_open: the error of parameters that rounding leaves open
    because heads hardly differ on rows that may be sent. nearly: how many times further a bound may go that
    only says how little is known, where most fresh answers need no error of the parameters beyond
    rounding."""

    explained: float
    exact: float
    input_bound: float | None
    left_open: float = 0.0
    nearly: float = 1.0


def _status(certificate: Certificate, bound: float | None, limits: _Limits) -> tuple[Status, str]:
    """A bound or a deviation beyond what the answers' own errors explain means another function than the one
    learnt, however small it is."""
    exact, explained = limits.exact, limits.explained
    if certificate.passed and bound is not None and bound <= exact:
        return Status.EXACT, certificate.statement
    known, seen = np.inf if bound is None else bound, certificate.max_relative_error
    # where rounding explains every fresh answer, nothing speaks for another function, however the bound is;
    # nor where they are as exact as can be, and the bound is near what rounding explains
    most = max(explained, limits.left_open)
    more = np.inf if seen == 0.0 else limits.nearly * most if seen <= exact else explained
    useful = known <= USEFUL and known <= (more if certificate.passed else explained)
    if useful and seen <= max(certificate.allowed if exact == 0.0 else 0.0, PARTS * known):
        return Status.WITHIN_BOUND, certificate.statement
    beyond = certificate.max_relative_error > max(exact, 10.0 * min(most, known))
    if certificate.failed is not None and beyond:
        return Status.OUTSIDE_CLASS, Refutation(CERTIFICATE_TEST, certificate.statement).sentence
    if limits.input_bound is not None and limits.left_open > USEFUL:
        return Status.UNRESOLVED, (
            f"rows may be {limits.input_bound:g} long, and their scores are so small that rounding hides "
            f"what tells the heads apart; the parameters are known to a relative error of {known:.1g}; "
            f"longer rows (input_bound) would help; {certificate.statement}"
        )
    told = (
        f"the parameters are only known to a relative error of {known:.1g}"
        if np.isfinite(known)
        else "no error of the parameters explains how far fresh answers of all lengths are off"
    )
    return Status.UNRESOLVED, (
        f"{told}, where rounding explains {most:.1g}; {certificate.statement}; exact answers, larger inputs "
        "(input_bound) or another seed would help"
    )
