"""Cheap tests of the single-head class before the expensive part: each names itself when it fails."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, logit
from unsoftmax.families import Family
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.one_head.exact import SIGMOID_TEST
from unsoftmax.meters.probes.balanced_probes import direction_that_sees
from unsoftmax.outcomes import OutsideClass, Test

__all__ = [
    "CONSTANT_TEST",
    "ONE_ROW_TEST",
    "ORDER_TEST",
    "REPEAT_TEST",
    "SOFTMAX_TEST",
    "check_attention_shape",
    "check_constant",
    "check_one_row_affine",
    "check_repeatable",
]

_ONE_HEAD = frozenset({Family.SINGLE_HEAD})
CONSTANT_TEST = Test("sequences move the answer only if single rows do", _ONE_HEAD)
ONE_ROW_TEST = Test("one-row answers are affine", frozenset({Family.SINGLE_HEAD, Family.MULTI_HEAD}))
REPEAT_TEST = Test("the same query gets the same answer")
ORDER_TEST = Test("the order of earlier rows does not matter")
SOFTMAX_TEST = Test("three rows share by softmax", _ONE_HEAD)

_READABLE = 12.0  # scores beyond are lost to rounding
_SHORTER, _SIZES = 4.0, 6  # rows are shortened so often where scores are stronger than that
_RTOL = 1e-9  # what a float64 computation of the function never exceeds, relative to the sizes involved


def check_one_row_affine(asker: Asker, v: Array, c: float, rng: np.random.Generator) -> None:
    """f([x]) = c + x·v on fresh rows of several sizes."""
    sizes = np.array([0.1, 1.0, 1.0, 30.0])
    if asker.input_bound is not None:
        sizes = asker.input_bound * np.array([0.1, 0.5, 0.5, 1.0])
    rows = rng.standard_normal((len(sizes), asker.width))
    rows *= (sizes / np.linalg.norm(rows, axis=1))[:, None]
    with asker.phase(VERIFICATION):
        answers = asker.ask(rows[:, None])
    allowed = _RTOL * (abs(c) + np.linalg.norm(rows, axis=1) * np.linalg.norm(v))
    excess = np.abs(answers - c - rows @ v)
    worst = int(np.argmax(excess - allowed))
    if excess[worst] > allowed[worst]:
        raise OutsideClass(
            ONE_ROW_TEST,
            f"a row of norm {sizes[worst]:.3g} is answered {excess[worst]:.3g} away from c + x·v (allowed "
            f"{allowed[worst]:.1g})",
        )


def check_repeatable(asker: Asker, v: Array, c: float) -> None:
    """The first queries, asked again: an exact oracle gives the same answers."""
    sequences = [(sequence, answer) for sequence, answer in asker.early_queries if len(sequence) == 1][:4]
    with asker.phase(VERIFICATION):
        for sequence, before in sequences:
            now = float(asker.ask(sequence[None])[0])
            allowed = 1e-12 * (abs(c) + float(np.linalg.norm(sequence) * np.linalg.norm(v)))
            if abs(now - float(before)) > allowed:
                raise OutsideClass(REPEAT_TEST, f"one was answered {float(before):.12g} and later {now:.12g}")


def check_constant(asker: Asker, c: float, rng: np.random.Generator) -> None:
    """When no single row moves the answer, no sequence does."""
    size = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / (4 * np.sqrt(asker.width)))
    with asker.phase(VERIFICATION):
        for length in (1, 2, 3, 6):
            answers = asker.ask(size * np.clip(rng.standard_normal((4, length, asker.width)), -4, 4))
            if np.abs(answers - c).max() > 1e-12 * abs(c):
                raise OutsideClass(
                    CONSTANT_TEST,
                    f"single unit rows all give {c:.6g}, but a sequence of {length} rows moved the answer by "
                    f"{np.abs(answers - c).max():.3g}",
                )


def check_attention_shape(
    asker: Asker, v: Array, c: float, scales: tuple[float, float], rng: np.random.Generator
) -> None:
    """Scores grow in proportion to a row, and three rows share by softmax, in any order. Rows are shortened
    until the scores can be read."""
    gamma, beta = scales
    d = asker.width
    b = rng.standard_normal(d)
    b *= beta / np.linalg.norm(b)
    directions = tuple(direction_that_sees(v, rng) for _ in range(2))
    for _ in range(_SIZES):
        first, second = (gamma * direction for direction in directions)
        rows = (first, 0.5 * first, -first, second)
        with asker.phase(VERIFICATION):
            answers = asker.ask(np.stack([np.stack([row + b, b]) for row in rows]))
        signals = np.array([row @ v for row in rows])
        shares = (answers - c - b @ v) / signals
        rounding = _RTOL * (1.0 + (beta + abs(c) / np.linalg.norm(v)) / gamma) * np.sqrt(d)
        outside = float(np.abs(shares - 0.5).max()) - 0.5
        if outside > rounding:
            raise OutsideClass(
                SIGMOID_TEST,
                f"a row gets {outside:.3g} less than nothing, or more than everything, of the weight",
            )
        scores = logit(shares)
        _check_proportion(scores, rounding)
        if np.abs(scores).max() < _READABLE:
            break
        gamma /= _SHORTER
    else:
        return
    with asker.phase(VERIFICATION):
        three = asker.ask(
            np.stack([np.stack([first + b, second + b, b]), np.stack([second + b, first + b, b])])
        )
    weights = np.exp(scores[[0, 3]])
    predicted = c + b @ v + weights @ signals[[0, 3]] / (1.0 + weights.sum())
    allowed = rounding * np.exp(np.abs(scores).max()) * (abs(c) + abs(b @ v) + np.abs(signals).sum())
    if abs(three[0] - three[1]) > allowed:
        raise OutsideClass(
            ORDER_TEST, f"swapping the first two rows moved the answer by {abs(three[0] - three[1]):.3g}"
        )
    if abs(three[0] - predicted) > allowed:
        raise OutsideClass(
            SOFTMAX_TEST, f"three rows are answered {three[0]:.9g}, their scores predict {predicted:.9g}"
        )


def _check_proportion(scores: Array, rounding: float) -> None:
    """The second and third row are half of the first one, and its negative."""
    for part, name in ((0.5, 1), (-1.0, 2)):
        largest = float(np.abs(scores[[0, name]]).max())
        if largest < _READABLE and abs(scores[name] - part * scores[0]) > rounding * np.exp(largest):
            raise OutsideClass(
                SIGMOID_TEST,
                f"a row has score {scores[0]:.9g}, but {part:g} times the row has {scores[name]:.9g}; one "
                "head's scores grow in proportion",
            )
