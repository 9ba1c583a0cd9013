"""Short arithmetic told apart from short answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.learners.computed.float_layers import FloatLayer, random_layer
from unsoftmax.answers.arithmetic import Arithmetic, arithmetic_rows, judge_arithmetic
from unsoftmax.float_formats import FloatFormat

_FORMATS = [
    (torch.float32, FloatFormat.FLOAT32),
    (torch.bfloat16, FloatFormat.BFLOAT16),
    (torch.float16, FloatFormat.FLOAT16),
]


def _look(
    target: FloatLayer, seed: int, stored: FloatFormat | None = None, offset: float = 0.0
) -> Arithmetic:
    answers = target.ask(arithmetic_rows(target.width, np.random.default_rng(seed)))
    answers = answers + offset
    return judge_arithmetic(answers if stored is None else stored.store(answers))


@pytest.mark.parametrize(("d", "heads"), [(8, 2), (16, 2), (64, 4)])
@pytest.mark.parametrize(("dtype", "expected"), _FORMATS)
@pytest.mark.parametrize("vector", [False, True])
def test_layers_that_round_at_every_step(
    d: int, heads: int, dtype: torch.dtype, expected: FloatFormat, vector: bool
) -> None:
    for seed in range(5):
        layer = random_layer(d, heads, seed)
        target = FloatLayer(layer, dtype, None).stored() if vector else FloatLayer.scalar(layer, seed, dtype)
        found = _look(target, seed)
        assert found.computed
        assert found.format is expected
        assert expected.unit / 4 < found.noise < 40 * expected.unit


@pytest.mark.parametrize("stored", [None, *FloatFormat])
def test_exact_arithmetic_is_not_called_short_however_answers_are_stored(stored: FloatFormat | None) -> None:
    for seed in range(20):
        target = FloatLayer.scalar(random_layer(16, 2, seed), seed, torch.float64)
        found = _look(target, seed, stored)
        assert not found.computed
        assert found.stored is stored


def test_answers_read_out_in_float64_behind_float32_arithmetic() -> None:
    target = FloatLayer(random_layer(16, 2, 0), torch.float32, None)
    rows = arithmetic_rows(16, np.random.default_rng(0))
    found = judge_arithmetic(target.ask(rows) @ np.random.default_rng(1).standard_normal(16))
    assert found.stored is None
    assert found.format is FloatFormat.FLOAT32


def test_errors_of_one_size_are_not_arithmetic() -> None:
    target = FloatLayer.scalar(random_layer(16, 2, 0), 0, torch.float64)
    rows = arithmetic_rows(16, np.random.default_rng(0))
    answers = target.ask(rows)
    assert not judge_arithmetic(
        answers + 1e-5 * np.random.default_rng(1).uniform(-1, 1, len(answers))
    ).computed
    assert not judge_arithmetic(np.round(answers, 4)).computed
