"""Which status the evidence allows: fresh answers are compared with the model by the ruler of the answers.

A learner brings a model and a bound. The judge takes the ruler from the kind of answers, measures where it
can, and lets no learner grade itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.answers import Answers, Clipped, Computed, Labels, Noisy, Rounded, Stored, Within
from unsoftmax.arrays import Array
from unsoftmax.certify import (
    AnswersOff,
    Certificate,
    Shown,
    certify,
    check_claim,
    check_fresh_sequences,
    check_sharp_sequences,
    error_bound,
    left_open,
    rounding_in_answers,
    rounding_limit,
    usual_chances,
)
from unsoftmax.certify.fresh_sequences import Explained
from unsoftmax.certify.sample import OwnSequences, length_class
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners import Learned
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.outcomes import Refutation, Status, Test, Unresolved

__all__ = ["Verdict", "judge", "tolerance_of"]

CERTIFICATE_TEST = Test("fresh sequences are answered as the model predicts")
_SLACK = 100.0  # how far beyond the usual rounding a float64 computation may go
_NEARLY = 10.0  # times what rounding explains: estimates of it, and bounds, vary by so much
# classes of lengths of one model needed errors within a factor of 10 to 30 of each other
_DISAGREE, _LEAST = 300.0, 1e-13
_PARTS = 2.0  # errors of W and of v, each within the bound, add up
_ALIKE = 1e-6  # distance of heads, relative to W, down to which they are told apart
_USEFUL = 0.1  # relative error from which a recovery is none
_SHORTER = 0.01  # of the longest rows inside the limits: a constant near a limit leaves so much, hardly less
_NOT_OVER = 0.25  # of the same, where the learner says nothing: a readout of half its size does not overflow
_ROUGH = 0.01  # relative error from which a bound is raised to what fresh answers could have shown
_TOKENS = 4.0  # rows over √d: no certificate of a layer looks at tokens alone
_ROWS = 8  # single rows that measure v
_LONG = 1e3  # norm of these rows where there is no bound
_FEW = 2.0  # eight random rows see an error of v at half its usual size once in 10^4 times (d = 4 and more)
_USUAL_NOISE = 2.0 / 6.0  # of the most that a Gaussian error reaches, what is usual: two standard deviations


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
    if not answers.exact and _own_bound(learned) is None:
        learned = replace(learned, error_bound=_bound(view, learned, answers, checking))
    own = _own_bound(learned)
    if own is not None and not answers.exact:
        sharp = _check_bound(view, learned, own, answers, learning)
    if own is not None and own <= _USEFUL and not (answers.exact and own <= learned.model.exact_at):
        claimed = _check_claim(view, learned, own, answers, learning)
    shown = sharp if sharp > 0.0 else claimed.could  # sharp sequences tell more, where there are any
    exact_at = learned.model.exact_at
    certificate = certify(
        view,
        learned.model,
        checking,
        allowed=max(exact_at if own is None else max(exact_at, 2.0 * min(own, _USEFUL)), answers.rounding),
        answers_off=AnswersOff(
            tolerance_of(answers, learned),
            answers.deviation,
            answers.repeats,
            shown,
            _beside_constant(answers, learned.model),
        ),
        caveat=learned.caveat,
        own=None if sequences is None else OwnSequences(sequences),
    )
    wrong = not certificate.passed and certificate.max_relative_error > _USEFUL
    bound = None if wrong else _bound(view, learned, answers, checking)
    if bound is not None and own is not None and not answers.exact:
        # no bound is below what the answers could have shown
        bound = max(bound, shown, claimed.could if own >= _ROUGH else 0.0)
    if bound is not None:
        bound = max(bound, claimed.did)
    explained = in_answers = np.inf
    if own is None and answers.exact:
        explained, in_answers = (
            max(_SLACK * limit, learned.bound_at_least)
            for limit in (
                rounding_limit(learned.model, view.input_bound),
                rounding_in_answers(learned.model, view.input_bound),
            )
        )
    elif own is not None:
        explained = max(exact_at if answers.exact else 0.0, _SLACK * max(own, bound or 0.0))
    usual, by_chance = usual_chances(learned.model)
    measured = bound
    evidence = _Evidence(certificate, explained, in_answers, usual, by_chance, answers.exact)
    visible = evidence.raises(_smaller(bound, learned.answers_bound))
    bound = evidence.raises(bound)
    if answers.exact and _lengths_disagree(certificate, explained, min(usual * (measured or 0.0), exact_at)):
        bound = visible = None
    limits = _Limits(explained, exact_at if answers.exact else 0.0, view.input_bound)
    if answers.exact and (visible is None or visible > exact_at):
        # heads that hardly differ, or rows that are short, leave more open
        left = left_open(view, learned.model)
        limits = replace(
            limits, nearly=_nearly(certificate, max(explained / _SLACK, left)), left_open=_SLACK * left
        )
    status, reason = _status(certificate, visible, limits)
    if status is Status.WITHIN_BOUND and bound is not None and visible is not None:
        certificate = _restated(certificate, visible)
        reason = f"the parameters are known to a relative error of {bound:.1g}; {certificate.statement}"
    if status is Status.OUTSIDE_CLASS and certificate.max_relative_error <= 10.0 * answers.rounding:
        status = Status.UNRESOLVED  # as near as rounding brings another model of the same family
    if status is Status.OUTSIDE_CLASS and _could_be_more_heads(learned.model, answers, certificate):
        status = Status.UNRESOLVED
        reason = (
            f"{certificate.statement}; heads that are closer than {_ALIKE:g}, relative to W, may have been "
            "given as one"
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
    return np.inf if max(certificate.parameters_off, certificate.scores_off) <= rounding else _SLACK


def _smaller(bound: float | None, other: float | None) -> float | None:
    """The smaller of two bounds, where there is a first one."""
    return bound if bound is None or other is None else min(bound, other)


def _own_bound(learned: Learned) -> float | None:
    """What the learner says of the parameters that move answers."""
    said = [each for each in (learned.error_bound, learned.answers_bound) if each is not None]
    return min(said, default=None)


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


@dataclass(frozen=True)
class _Evidence:
    """Fresh answers, against which a bound is held. explained: the error of the parameters that the answers'
    own errors account for. in_answers: what of that shows in answers. usual, by_chance: how many times
    further than a random one an error may move most sequences, and a few."""

    certificate: Certificate
    explained: float
    in_answers: float
    usual: float
    by_chance: float
    exact: bool

    def raises(self, bound: float | None) -> float | None:
        """The bound that explains all fresh answers; None where no error of the parameters does."""
        seen, most = self.certificate, self.by_chance * self.explained
        raised = [
            _explaining(bound, seen.parameters_off, self.by_chance, most),
            _explaining(bound, max(seen.usually_off.values()), self.usual, most),
        ]
        if self.exact:
            raised.append(_raised(bound, seen.max_relative_error, self.explained, self.in_answers))
            raised.append(_explaining(bound, seen.scores_off, self.usual, most))
        known = [each for each in raised if each is not None]
        return max(known) if len(known) == len(raised) else None


def _raised(bound: float | None, seen: float, explained: float, in_answers: float) -> float | None:
    """What fresh answers say of the bound: where they deviate more than it explains, and rounding could be
    the reason, the bound was too small; where rounding cannot, there is none. in_answers: what of an error
    `explained` of the parameters shows in answers, which is less where a head is faint."""
    if bound is None or seen <= _PARTS * bound:
        return bound
    if seen > in_answers:
        return None
    return max(bound, seen * explained / in_answers if np.isfinite(in_answers) else seen)


def _explaining(bound: float | None, needed: float, chance: float, most: float) -> float | None:
    """The bound, or the error of the parameters that fresh deviations need at most, where the bound explains
    them by no chance; None where the answers' own errors do not account for such an error either. chance: how
    many times further than usual, or less far, an error may move answers. most: what those errors account
    for, by chance."""
    if bound is None or needed <= chance * bound:
        return bound
    return chance * needed if needed <= most else None


def _lengths_disagree(certificate: Certificate, explained: float, measured: float) -> bool:
    """Whether one class of lengths needs an error of the parameters far beyond rounding, and another one of
    several rows none that is nearly so large: then it is another function there. explained: the error that
    rounding accounts for, at most. measured: what the error that probes show accounts for, no more than an
    exact model may be off by; in a few columns, it moves classes differently."""
    several = [needed for length, needed in certificate.usually_off.items() if length != length_class(1)]
    usual = explained / _SLACK if np.isfinite(explained) else np.inf
    return bool(several) and max(several) > max(_DISAGREE * min(several), _NEARLY * usual, _LEAST, measured)


def _could_be_more_heads(model: Model, answers: Answers, certificate: Certificate) -> bool:
    """Whether heads so close that no learner tells them apart explain what is wrong."""
    return isinstance(model, MultiHead) and answers.exact and certificate.max_relative_error <= _ALIKE


def _restated(certificate: Certificate, bound: float) -> Certificate:
    """What the certificate says of a model whose parameters are known to this bound only."""
    allowed = max(certificate.allowed, _PARTS * bound)
    return replace(certificate, allowed=allowed, passed=True, failed=None)


def tolerance_of(answers: Answers, learned: Learned) -> float:
    """How far an answer may be off by itself. A constant that the answers' errors hide is in every answer,
    and adds as much again at most."""
    if isinstance(answers, Computed):
        # c comes out of answers to rows as long as tokens, and no better than those are rounded; and it is
        # itself a sum of rounded parts inside the target, which rows of zeros show alone
        tokens = np.random.default_rng(0).standard_normal((_ROWS, 1, learned.model.width))
        usual = float(np.abs(learned.model(tokens)).max())
        return min((learned.constant_bound or 0.0) + answers.noise * usual, answers.rounding * usual)
    hidden = 0.0 if learned.constant_bound is None else learned.constant_bound / 2
    return min(max(answers.tolerance, hidden), 2.0 * answers.tolerance)


def _beside_constant(answers: Answers, model: Model) -> float:
    """How far a stored number may be off that is as large as the model's constant."""
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    if not isinstance(ruler, Stored):
        return 0.0
    return float(np.max(ruler.off(model(np.zeros((1, 1, model.width))))))


def _bound(asker: Asker, learned: Learned, answers: Answers, rng: np.random.Generator) -> float | None:
    """The learner's bound where answers carry errors; measured where they are exact."""
    own = learned.error_bound
    measured = error_bound(asker, learned.model, rng) if own is None or answers.exact else None
    known = [each for each in (own, measured) if each is not None]
    return max(*known, learned.bound_at_least) if known else None


def _check_bound(
    asker: Asker, learned: Learned, own: float, answers: Answers, rng: np.random.Generator
) -> float:
    """Fresh sequences against a head whose parameters are said to be known so well; how well, at best, they
    could have told."""
    head = learned.model
    if own > _USEFUL or not isinstance(head, SingleHead) or head.outputs is not None:
        return 0.0
    if isinstance(answers, Computed):  # sharper sequences round more, and are judged by the certificate
        return 0.0
    if head.matrix.norm() == 0.0:
        raise Unresolved(
            "no score is told from zero through these answers, so W has no relative error; either W = 0, or "
            "longer rows (input_bound) or finer answers are needed"
        )
    v_error = min(
        own, own if learned.v_bound is None else learned.v_bound, _error_of_v(asker, head, answers, rng)
    )
    constant = min(learned.constant_bound or 0.0, 2.0 * answers.tolerance)
    shown = check_sharp_sequences(asker, head, answers, own, rng, v_error=v_error, constant=constant)
    if answers.repeats > 1:
        return shown
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    check_fresh_sequences(
        asker,
        head,
        own,
        Explained(
            lambda values: _off(ruler, tolerance_of(ruler, learned), values),
            usual=_USUAL_NOISE if isinstance(ruler, Noisy) else 1.0,
            deviation=ruler.deviation if isinstance(ruler, Labels) else None,
        ),
        rng,
        v_error=v_error,
    )
    return shown


def _check_claim(
    asker: Asker, learned: Learned, own: float, answers: Answers, rng: np.random.Generator
) -> Shown:
    """Fresh sequences against every group of parameters that the model has, as well as it is said to be
    known; how well, at best, they could have told."""
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    constant = min(learned.constant_bound or 0.0, 2.0 * ruler.tolerance)
    return check_claim(asker, learned.model, own, ruler, rng, constant=constant)


def _refuse_without_readout(model: Model) -> None:
    if any(not part.any() for part in _readouts(model)):
        raise Unresolved(
            "the model has a readout of zeros, and no answer tells anything of its other parameters"
        )


def _error_of_v(asker: Asker, head: SingleHead, answers: Answers, rng: np.random.Generator) -> float:
    """How far v may be off, as single rows show, which no score moves; nothing is asked of labels."""
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    if isinstance(ruler, Labels):
        return np.inf
    size = _LONG if asker.input_bound is None else asker.input_bound
    rows = rng.standard_normal((_ROWS, 1, head.width))
    rows *= size / np.linalg.norm(rows, axis=2, keepdims=True)
    with asker.phase(VERIFICATION):
        given = asker.ask(rows)
    values = head(rows)
    seen = np.abs(given - values) + _off(ruler, ruler.tolerance, values)
    return float(_FEW * np.sqrt(head.width) * seen.max() / (size * float(np.linalg.norm(head.v))))


def _off(answers: Answers, tolerance: float, values: Array) -> Array:
    """How far answers may be from these values by themselves, with a little room for the tolerance's own
    error."""
    match answers:
        case Stored():
            return answers.off(values)
        case Rounded():
            return np.full(len(values), 1.0002 * tolerance)
        case Within() | Noisy():
            return np.full(len(values), 1.05 * tolerance)
        case _:
            return np.zeros(len(values))


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
    useful = known <= _USEFUL and known <= (more if certificate.passed else explained)
    if useful and seen <= max(certificate.allowed if exact == 0.0 else 0.0, _PARTS * known):
        return Status.WITHIN_BOUND, certificate.statement
    beyond = certificate.max_relative_error > max(exact, 10.0 * min(most, known))
    if certificate.failed is not None and beyond:
        return Status.OUTSIDE_CLASS, Refutation(CERTIFICATE_TEST, certificate.statement).sentence
    if limits.input_bound is not None and limits.left_open > _USEFUL:
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
