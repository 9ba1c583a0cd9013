"""Whether a target rounds its rows to a short format first, whatever it computes in after that."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers.kinds import Answers, Clipped, Within
from unsoftmax.arrays import rms
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import UnresolvedByAny

__all__ = ["cast_format", "cast_noise", "even_part", "refuse_rounded_rows"]

_ROWS = 4  # that are sent as they are, cast, and moved within a cast
_LINES = 10  # a root mean square of ten is off by 22 % (1/sqrt(20)) or so
_SLIGHTLY = 1e-10  # relative move that nine digits drop, and that shows beside a constant 10^5 times as large
_LONG, _INSIDE = 16.0, 0.4  # size of the rows that tell a format from decimals; units that a format drops
_MANY = 12  # rows of the second look, once four have said that rows are cast
_SHORTER = 0.9  # of a row: an answer that does not change with its size says nothing
_MOVES = 16.0  # units of the format: a move that it holds
_FORMATS = (FloatFormat.FLOAT32, FloatFormat.FLOAT16, FloatFormat.BFLOAT16)


def cast_format(asker: Asker, rng: np.random.Generator) -> FloatFormat | None:
    """The shortest format in which rows get the same answers to the last bit, where a move of a few of its
    units changes every answer; None where all digits of rows count. Three queries where they do, else 55.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(4, seed=0)
    >>> short = unsoftmax.Ledger(unsoftmax.as_oracle(lambda X: head(X.astype("f4").astype("f8"))), width=4)
    >>> print(cast_format(short, np.random.default_rng(0)))
    float32
    >>> cast_format(unsoftmax.Ledger(unsoftmax.as_oracle(head)), np.random.default_rng(0)) is None
    True
    """
    rows = rng.standard_normal((_ROWS, 1, asker.width))
    longest = np.inf if asker.input_bound is None else asker.input_bound
    rows *= min(1.0, longest / (2.0 * float(np.linalg.norm(rows, axis=2).max())))
    few = np.concatenate([rows[:1], FloatFormat.FLOAT32.store(rows[:1]), _SHORTER * rows[:1]])
    first, again, shorter = asker.ask(few)
    if not np.array_equal(first, again) or np.array_equal(first, shorter):  # equal, but not at a limit
        return None
    plain, found = asker.ask(rows).reshape(_ROWS, -1), None
    for held in _FORMATS:
        short = held.store(rows)
        moved = held.store(short * (1.0 + _MOVES * held.unit))
        same, other = asker.ask(np.concatenate([short, moved])).reshape(2, _ROWS, -1)
        if (plain == same).all():
            found = held if (other != same).any(axis=1).all() else None
        elif held is FloatFormat.FLOAT32:
            return None
    return found if found is None or _rounds(asker, found, rng, longest) else None


def _rounds(asker: Asker, held: FloatFormat, rng: np.random.Generator, longest: float) -> bool:
    """Whether moves that the format drops are dropped in long rows too: a cache, or decimals, see
    them there. Shorter rows where long ones overflow inside the target."""
    rows = rng.standard_normal((_MANY, 1, asker.width))
    for size in (_LONG, 1.0):
        rows *= min(size, longest / (2.0 * float(np.linalg.norm(rows, axis=2).max())))
        short = held.store(rows)
        sizes = 2.0 ** np.floor(np.log2(np.maximum(np.abs(short), 1e-300)))
        near = short + _INSIDE * 2.0 * held.unit * sizes * np.sign(short)
        try:
            answers = asker.ask(np.concatenate([short, near])).reshape(2, _MANY, -1)
        except NonFiniteAnswers:
            rows = rng.standard_normal((_MANY, 1, asker.width))
            continue
        return bool((answers[0] == answers[1]).all())
    return False


def cast_noise(asker: Asker, rng: np.random.Generator, longest: float) -> float:
    """Errors of answers to single rows with all digits, relative to the answers: root mean square, from their
    distance to affine ones. A target may round to fewer digits than the format that it was taken for."""
    rows = rng.standard_normal((_LINES, 3, asker.width))
    rows[:, 1] = (rows[:, 0] + rows[:, 2]) / 2.0
    rows *= min(1.0, longest / float(np.linalg.norm(rows, axis=2).max()))
    answers = asker.ask(rows.reshape(-1, 1, asker.width)).reshape(_LINES, 3, -1)
    # the middle one counts twice: four units of variance, and one of each end
    return float(rms(np.diff(answers, 2, axis=1)) / np.sqrt(6.0) / max(rms(answers), 1e-300))


def refuse_rounded_rows(asker: Asker, answers: Answers, rng: np.random.Generator) -> None:
    """Raises `UnresolvedByAny` where answers are off by a tolerance because the target rounds its rows first:
    then their errors grow with the rows and with scores, and no tolerance bounds them. Rows that are moved by
    less than such rounding get the same answers to the last bit. Eight queries."""
    inside = answers.inner if isinstance(answers, Clipped) else answers
    if not isinstance(inside, Within):
        return
    rows = rng.standard_normal((_ROWS, 1, asker.width))
    longest = np.inf if asker.input_bound is None else asker.input_bound
    rows *= min(1.0, longest / (2.0 * float(np.linalg.norm(rows, axis=2).max())))
    plain, moved = asker.ask(np.concatenate([rows, rows * (1.0 + _SLIGHTLY)])).reshape(2, _ROWS, -1)
    if (plain == moved).all(axis=1).sum() >= _ROWS // 2:
        raise UnresolvedByAny(
            "rows are rounded before anything is computed from them: moved by a part in 10^10, most get the "
            "same answer to the last bit; send them to a target that takes all their digits, or in a format "
            "that holds them (float32, float16 or bfloat16)"
        )


def even_part(asker: Asker, rng: np.random.Generator, longest: float) -> float:
    """How far opposite rows of usual size are from being answered affinely, relative to their answers: a
    residual connection hides what bends beside longer ones."""
    rows = rng.standard_normal((4, 1, asker.width))
    rows *= min(1.0, longest / float(np.linalg.norm(rows, axis=2).max()))
    answers = asker.ask(np.concatenate([rows, -rows, np.zeros_like(rows[:1])]))
    off = answers[:4] + answers[4:8] - 2.0 * answers[8:]
    return float(np.abs(off).max() / max(float(np.abs(answers).max()), 1e-300))
