"""Sequences on which answers with errors tell as much as the learner says it knows.

Behind a tolerance or noise, rows so long that the errors are nothing beside the answer. Behind decimals,
short floats or labels, pairs of sequences whose values lie just above and just below a place where the answer
changes.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Answers, Clipped, Labels, Noisy, Rounded, Stored, Within
from unsoftmax.arrays import EPS, Array, longest_rows
from unsoftmax.certify.fresh_sequences import most_moved
from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import VERIFICATION, Asker, median_answers
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["SHARP_TEST", "check_sharp_sequences"]

SHARP_TEST = Test("sequences on which small deviations show are answered as the model predicts")

_LENGTHS = (2, 3, 4, 6, 11)  # short ones, where one row shows most, and one beyond those that learners send
_EACH = 6  # sequences, or pairs, of every length
_STEPS = 40  # of the search for a place where the answer changes
_LAST_DIGITS = 6.0  # units by which sums in another order differ: 2 to 4 were seen
_LONGEST = 1e14  # rows are not longer: rounding of their own would show
# of a value: how near to a place where bfloat16 changes it may lie, since it comes through float32 and is
# rounded twice
_TWICE = 4.0 * FloatFormat.FLOAT32.unit
_ROOM = 4.0  # the errors of answers are so many times smaller than what the bound explains, where rows allow


def check_sharp_sequences(
    asker: Asker,
    head: SingleHead,
    answers: Answers,
    error: float,
    rng: np.random.Generator,
    *,
    v_error: float | None = None,
    constant: float = 0.0,
) -> float:
    """The smallest relative error of the parameters that half of these sequences would have shown; 0 where no
    such sequences exist. Raises `OutsideClass` where one shows more than errors of the size `error` explain.

    v_error: that of v alone. constant: how far c may be off.
    """
    ruler = answers.inner if isinstance(answers, Clipped) else answers
    lengths = [n for n in _LENGTHS if asker.max_length is None or n <= asker.max_length]
    if not lengths or not head.v.any():
        return 0.0
    errors = (error, error if v_error is None else v_error)
    shown: list[Array] = []
    for length in lengths:
        match ruler:
            case Within() | Noisy():
                rows = _long_rows(head, ruler.tolerance, error, length, asker.input_bound, rng)
                shown.append(_compare(asker, head, rows, ruler, errors, constant))
            case Stored() | Labels() | Rounded():
                rows = _usual_rows(head, length, asker.input_bound, rng)
                found = _straddle(asker, head, rows, ruler, errors, constant)
                if not len(found) and isinstance(ruler, Rounded):  # a hidden constant moves the places
                    rows = _long_rows(head, ruler.tolerance, error, length, asker.input_bound, rng)
                    found = _compare(asker, head, rows, ruler, errors, constant)
                shown.append(found)
            case _:
                return 0.0
    seen = np.concatenate(shown)
    if head.w0 is not None and isinstance(ruler, Within | Noisy):
        return 0.0  # a query bias keeps random rows short; learners use longer ones that it does not move
    return float(np.median(seen)) if len(seen) else 0.0


def _usual_size(head: SingleHead) -> float:
    """The norm of rows at which scores are near one."""
    strength = head.score_strength() + (
        0.0 if head.w0 is None else float(np.linalg.norm(head.w0)) ** 2 / head.width
    )
    return float(1.0 / np.sqrt(strength)) if strength > 0.0 else 1.0


def _unit_rows(n: int, length: int, head: SingleHead, rng: np.random.Generator) -> Array:
    """Unit rows, half of them with a part along v, which makes answers of rows differ."""
    rows = rng.standard_normal((n, length, head.width))
    along = rng.standard_normal((n, length, 1)) * head.v / np.linalg.norm(head.v)
    rows[::2] += np.sqrt(head.width) * along[::2]
    return np.asarray(rows / np.linalg.norm(rows, axis=2, keepdims=True))


def _usual_rows(head: SingleHead, length: int, bound: float | None, rng: np.random.Generator) -> Array:
    rows = _unit_rows(_EACH, length, head, rng)
    size = _usual_size(head) * 2.0 ** rng.uniform(-1.0, 1.5, (_EACH, length, 1))
    return rows * (size if bound is None else np.minimum(size, bound / 2))


def _long_rows(
    head: SingleHead,
    tolerance: float,
    error: float,
    length: int,
    bound: float | None,
    rng: np.random.Generator,
) -> Array:
    """Long first rows, and an asking row so short that scores are moderate; a query bias limits them."""
    wanted = _ROOM * tolerance / (max(error, EPS) * float(np.linalg.norm(head.v)))
    limit = _LONGEST if bound is None else bound
    size = float(np.clip(wanted, min(_usual_size(head), limit), limit))
    if head.w0 is not None and head.w0.any():
        size = min(size, float(np.sqrt(head.width) / np.linalg.norm(head.w0)))
    rows = _unit_rows(_EACH, length, head, rng)
    rows *= size * 2.0 ** -rng.uniform(0.0, 2.0, (_EACH, length, 1))
    strength = max(head.score_strength(), 1e-300)
    asking = np.minimum(rng.uniform(0.5, 1.5, _EACH) / (strength * size), size)
    rows[:, -1] *= (asking / np.linalg.norm(rows[:, -1], axis=1))[:, None]
    return rows


def _compare(
    asker: Asker,
    head: SingleHead,
    rows: Array,
    ruler: Within | Noisy | Rounded,
    errors: tuple[float, float],
    constant: float,
) -> Array:
    """The relative errors that each sequence could show."""
    with asker.phase(VERIFICATION):
        answers = asker.ask(rows)
    values = head(rows)
    scale = head.sensitivity(rows)
    own = 1.05 * ruler.tolerance + constant + head.rounding(rows, values, scale)
    left = np.abs(answers - values) - own - most_moved(head, rows, values, *errors)
    _refuse(left, rows, answers, values, errors[0])
    return np.asarray(own / scale)


def _straddle(
    asker: Asker,
    head: SingleHead,
    rows: Array,
    ruler: Stored | Labels | Rounded,
    errors: tuple[float, float],
    constant: float,
) -> Array:
    """Pairs around a value at which the answer changes, as far apart as errors of the parameters explain."""
    middle = _place(ruler, head(rows))
    direction = head.v / float(head.v @ head.v)
    moved = _solve(head, rows, middle, direction)
    values = head(moved)
    scale = head.sensitivity(moved)
    apart = most_moved(head, moved, values, *errors) + constant + 4.0 * head.rounding(moved, values, scale)
    twice = isinstance(ruler, Stored) and ruler.format is FloatFormat.BFLOAT16
    if twice:
        apart = np.maximum(apart, _TWICE * np.abs(middle))
    good = np.abs(values - middle) <= 0.1 * apart
    good &= apart < 0.1 * _cell(ruler, middle)
    if asker.input_bound is not None:
        good &= longest_rows(moved) <= 0.999 * asker.input_bound
    pairs = []
    for sign in (1.0, -1.0):
        beside = _solve(head, moved, middle + 1.2 * sign * apart, direction)
        good &= np.abs(head(beside) - middle - 1.2 * sign * apart) <= 0.1 * apart
        pairs.append(beside)
    if not good.any():
        return np.empty(0)
    both = np.concatenate([pairs[0][good], pairs[1][good]])
    with asker.phase(VERIFICATION):
        found = median_answers(asker, both, ruler.repeats)
    above = np.repeat([True, False], int(good.sum()))
    cut = np.tile(middle[good], 2) if not isinstance(ruler, Labels) else np.full(len(both), ruler.middle)
    values = head(both)
    wrong = np.where((found > cut) == above, -1.0, np.tile(apart[good], 2))
    if isinstance(ruler, Stored):
        _refuse_arithmetic(ruler.format, found[wrong > 0.0], values[wrong > 0.0])
    _refuse(wrong, both, found, values, errors[0])
    # beside zero answers show signs only, which a factor does not change
    telling = good & (middle != 0.0) if isinstance(ruler, Stored) else good
    # a factor on v moves a value by that part of itself, which may be little of what errors of v can move
    return np.maximum(1.2 * apart[telling] / scale[telling], 1.2 * _TWICE if twice else 0.0)


def _place(ruler: Stored | Labels | Rounded, values: Array) -> Array:
    """The nearest value at which the answer changes."""
    match ruler:
        case Labels():
            return np.zeros(len(values))
        case Rounded():
            return np.asarray((np.floor(values / ruler.step) + 0.5) * ruler.step)
        case Stored():
            stored = ruler.format.store(values)
            # away from zero: towards it, the numbers beside a power of two are half as far apart
            places = np.asarray(stored + np.copysign(0.5 * _cell(ruler, stored), stored))
            if ruler.format is FloatFormat.BFLOAT16:
                places[::2] = 0.0  # sharper: elsewhere its numbers come through float32, rounded twice
            return places


def _cell(ruler: Stored | Labels | Rounded, values: Array) -> Array:
    """How far apart neighbouring answers are."""
    match ruler:
        case Labels():
            return np.full(len(values), np.inf)
        case Rounded():
            return np.full(len(values), ruler.step)
        case Stored():
            size = np.maximum(np.abs(values), ruler.format.smallest)
            spacing = 2.0 ** (np.floor(np.log2(size)) - ruler.format.mantissa_bits)
            return np.where(values == 0.0, np.inf, spacing)


def _solve(head: SingleHead, rows: Array, wanted: Array, direction: Array) -> Array:
    """Rows moved together along the readout until the head's value is as wanted; secant steps, kept short."""
    shift, before = np.zeros(len(rows)), np.full(len(rows), np.nan)
    value_before = np.full(len(rows), np.nan)
    longest = 2.0 * longest_rows(rows) * float(np.linalg.norm(head.v))
    moved = rows
    for _ in range(_STEPS):
        value = head(moved)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (value - value_before) / (shift - before)
        slope = np.where(np.isfinite(slope) & (np.abs(slope) > 0.05), slope, 1.0)
        before, value_before = shift, value
        shift = shift + np.clip((wanted - value) / slope, -longest, longest)
        moved = rows + shift[:, None, None] * direction
        if np.all(np.abs(wanted - value) <= 8 * EPS * (np.abs(wanted) + longest)):
            break
    return np.asarray(moved)


def _refuse(left: Array, rows: Array, answers: Array, values: Array, error: float) -> None:
    worst = int(np.argmax(left))
    if not left[worst] <= 0.0:
        raise OutsideClass(
            SHARP_TEST,
            f"a sequence of {rows.shape[1]} rows of norm up to "
            f"{float(np.linalg.norm(rows[worst], axis=1).max()):.3g} is answered {float(answers[worst]):.9g} "
            f"where the model says {float(values[worst]):.9g}, which parameters known to {error:.1g} do not "
            "explain",
        )


def _refuse_arithmetic(short: FloatFormat, answers: Array, values: Array) -> None:
    """Answers on the wrong side, and all of them off by a few last digits only: the target computes in the
    short format, or orders its sums by the size of a call. That is not another function."""
    if len(answers) and (np.abs(answers - values) <= _LAST_DIGITS * 2.0 * short.unit * np.abs(values)).all():
        raise Unresolved(
            f"answers are off by a few of the last digits of {short}: the target computes in {short}, and "
            "does not only store its answers so; one that computes in float64 would help"
        )
