"""What a learner says of its own error, held against fresh answers. How far those may be off by themselves
comes from the kind of answers."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Answers, Clipped, Computed, Labels, Noisy, Rounded, Stored, Within
from unsoftmax.arrays import Array
from unsoftmax.certify import Shown, check_claim, check_fresh_sequences, check_sharp_sequences
from unsoftmax.certify.fresh_sequences import Explained
from unsoftmax.learners import Learned
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import Model, SingleHead
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = [
    "USEFUL",
    "beside_constant",
    "check_stated_bound",
    "check_stated_groups",
    "stated_bound",
    "tolerance_of",
]

USEFUL = 0.1  # relative error from which a recovery is none
_ROWS = 8  # single rows that measure v
_LONG = 1e3  # norm of these rows where there is no bound
_FEW = 2.0  # eight random rows see an error of v at half its usual size once in 10^4 times (d = 4 and more)
_USUAL_NOISE = 2.0 / 6.0  # of the most that a Gaussian error reaches, what is usual: two standard deviations


def stated_bound(learned: Learned) -> float | None:
    """What the learner says of the parameters that move answers."""
    said = [each for each in (learned.error_bound, learned.answers_bound) if each is not None]
    return min(said, default=None)


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


def beside_constant(answers: Answers, model: Model) -> float:
    """How far a stored number may be off that is as large as the model's constant."""
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    if not isinstance(ruler, Stored):
        return 0.0
    return float(np.max(ruler.off(model(np.zeros((1, 1, model.width))))))


def check_stated_bound(
    asker: Asker, learned: Learned, own: float, answers: Answers, rng: np.random.Generator
) -> float:
    """Fresh sequences against a head whose parameters are said to be known so well; how well, at best, they
    could have told. Rows of width 1 may be those of several heads, which no test has told from one."""
    try:
        return _check_one_head(asker, learned, own, answers, rng)
    except OutsideClass as stop:
        if asker.width > 1:
            raise
        raise Unresolved(
            f"as one head it {stop.reason}; at width 1 several heads would do so too, and such answers do "
            "not determine them; exact answers would help"
        ) from stop


def _check_one_head(
    asker: Asker, learned: Learned, own: float, answers: Answers, rng: np.random.Generator
) -> float:
    head = learned.model
    if own > USEFUL or not isinstance(head, SingleHead) or head.outputs is not None:
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


def check_stated_groups(
    asker: Asker, learned: Learned, own: float, answers: Answers, rng: np.random.Generator
) -> Shown:
    """Fresh sequences against every group of parameters that the model has, as well as it is said to be
    known; how well, at best, they could have told."""
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    constant = min(learned.constant_bound or 0.0, 2.0 * ruler.tolerance)
    return check_claim(asker, learned.model, own, ruler, rng, constant=constant)


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
