"""Heads whose answers are noisy, and then stored in a short format."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import unsoftmax
from unsoftmax import Model, SingleHead, Status
from unsoftmax.answers import Noisy, Unsteady, identify
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import Ledger
from unsoftmax.oracles import FunctionOracle, OracleSpec


class Box:
    """A model's answers with fresh noise, stored in a short format."""

    def __init__(self, model: Model, sigma: float, short: FloatFormat, seed: int) -> None:
        self.model, self.sigma, self.short = model, sigma, short
        self.rng = np.random.default_rng(seed + 50)

    def __call__(self, X: Array) -> Array:
        values = self.model(X)
        return self.short.store(values + self.sigma * self.rng.standard_normal(len(values)))


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("sigma", [1e-5, 2e-7])
@pytest.mark.parametrize("seed", [0, 2])
def test_one_head_is_recovered_behind_noise_and_float32(sigma: float, told: bool, seed: int) -> None:
    head = unsoftmax.random_single_head(6, seed=seed)
    box = Box(head, sigma, FloatFormat.FLOAT32, seed)
    learner = unsoftmax.noisy(sigma) if told else None
    result = unsoftmax.recover(box, width=6, seed=seed, learner=learner)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) <= (result.error_bound or 0.0) < 1e-3


def test_a_query_bias_is_recovered_too() -> None:
    head = unsoftmax.random_single_head(6, seed=1, biases=True)
    result = unsoftmax.recover(Box(head, 1e-5, FloatFormat.FLOAT32, 1), width=6, seed=1)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) <= (result.error_bound or 0.0) < 1e-3


@pytest.mark.parametrize(
    ("sigma", "short"),
    [(0.1, FloatFormat.BFLOAT16), (0.02, FloatFormat.BFLOAT16), (3e-4, FloatFormat.FLOAT16)],
)
def test_where_rounding_hides_the_head_finer_answers_are_asked_for(sigma: float, short: FloatFormat) -> None:
    head = unsoftmax.random_single_head(6, seed=0)
    result = unsoftmax.recover(Box(head, sigma, short, 0), width=6, seed=0)
    assert result.status is Status.UNRESOLVED
    assert "only finer answers help" in result.reason


def test_several_heads_are_not_refused() -> None:
    heads = unsoftmax.random_multi_head(6, 2, seed=0)
    for sigma in (1e-5, 2e-7):
        result = unsoftmax.recover(Box(heads, sigma, FloatFormat.FLOAT32, 0), width=6, seed=0)
        assert result.status is Status.UNRESOLVED
        assert "several heads" in result.reason


def test_noise_below_the_last_digit_is_no_drift() -> None:
    head = unsoftmax.random_single_head(6, seed=1)
    result = unsoftmax.recover(Box(head, 1e-8, FloatFormat.FLOAT32, 1), width=6, seed=1)
    assert result.status is Status.UNRESOLVED, result.reason


def test_a_drift_is_seen_in_float32() -> None:
    head, calls = unsoftmax.random_single_head(6, seed=0), count()
    oracle = FunctionOracle(
        lambda X: FloatFormat.FLOAT32.store(head(X) + 1e-6 * np.array([next(calls) for _ in X])),
        OracleSpec(width=6),
    )
    assert isinstance(identify(Ledger(oracle), np.random.default_rng(0)).answers, Unsteady)


def test_the_kind_of_answers_tells_how_long_rows_may_be() -> None:
    """Half of the noise is what rounding of the longest row's answer may add."""
    head = unsoftmax.random_single_head(6, seed=0)
    for sigma in (1e-3, 1e-5):
        box = Box(head, sigma, FloatFormat.FLOAT32, 0)
        found = identify(Ledger(FunctionOracle(box, OracleSpec(width=6))), np.random.default_rng(0)).answers
        assert isinstance(found, Noisy)
        rounding = FloatFormat.FLOAT32.unit * found.longest_row * np.linalg.norm(head.v)
        assert 0.2 < rounding / sigma < 1.2
    plain = FunctionOracle(unsoftmax.Noisy(unsoftmax.as_oracle(head), 1e-5), OracleSpec(width=6))
    assert identify(Ledger(plain), np.random.default_rng(0)).answers.longest_row == np.inf
