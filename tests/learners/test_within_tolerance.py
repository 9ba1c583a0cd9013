"""Answers within a tolerance and behind noise: error, bound, queries and row lengths."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import bounded, distance, hard_head, pushed_by, relative_error
from unsoftmax import Noisy, Rounded, SingleHead, Size, Status, WithinTolerance, as_oracle
from unsoftmax.arrays import Array


@pytest.mark.parametrize(("d", "r"), [(16, None), (16, 4), (16, 1), (33, 3), (5, None)])
@pytest.mark.parametrize(
    ("tau", "decimals", "R"), [(0.5, 0, 100.0), (0.005, 2, 10.0), (5e-5, 4, 1e4), (0.05, 1, 1e6)]
)
def test_error_and_queries_meet_the_claim(d: int, r: int | None, tau: float, decimals: int, R: float) -> None:
    learner = unsoftmax.within_tolerance(tau)
    for seed in range(2):
        head = hard_head(d, r, seed=seed)
        oracle = bounded(
            Rounded(as_oracle(head), decimals) if seed else WithinTolerance(as_oracle(head), tau, seed), R
        )
        result = unsoftmax.recover(oracle, learner=learner, seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        model = result.unwrap()
        assert isinstance(model, SingleHead)
        assert result.error_bound is not None
        error = relative_error(model.W, head.W)
        assert error <= 4.0 * tau / R * (1.5 if r == 1 else 1.0)
        assert distance(head, model) <= result.error_bound
        assert error >= 0.03 * result.error_bound
        assert result.queries.learning <= learner.claim.queries(Size(d, (r or d,)))
        assert oracle.norm <= R * (1 + 1e-12)


def test_adversarial_errors_stay_under_the_bound() -> None:
    """Every answer pushed towards zero, away from it, or to one side by the whole tolerance."""
    head = hard_head(12, seed=1)
    for box in pushed_by(head, 0.1):
        result = unsoftmax.recover(box, width=head.width, tolerance=0.1, input_bound=1e3)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 5e-3


@pytest.mark.parametrize("scale", [1e-4, 300.0])
def test_weak_and_strong_scores(scale: float) -> None:
    head = hard_head(10, seed=2, scale=scale)
    result = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.01), tolerance=0.01, input_bound=1e5)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-4


def test_too_coarse_answers_are_refused_with_advice() -> None:
    result = unsoftmax.recover(bounded(WithinTolerance(as_oracle(hard_head(16)), 0.5), 10.0), tolerance=0.5)
    assert result.status is Status.UNRESOLVED
    assert "input_bound" in result.reason
    assert result.model is None


def test_the_advised_bound_is_enough() -> None:
    head = hard_head(8, seed=4)
    refused = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.05), tolerance=0.05, input_bound=3.0)
    assert refused.status is Status.UNRESOLVED
    advised = float(refused.reason.split("rows of norm ")[-1].split(" ")[0])
    assert (
        unsoftmax.recover(
            WithinTolerance(as_oracle(head), 0.05), tolerance=0.05, input_bound=3 * advised
        ).status
        is Status.WITHIN_BOUND
    )


@pytest.mark.parametrize("bound", [0.5, 2.0])
def test_short_rows_are_enough_for_fine_answers(bound: float) -> None:
    for seed in (1, 2):
        head = unsoftmax.random_single_head(6, seed=seed)
        box = WithinTolerance(as_oracle(head), 1e-6)
        result = unsoftmax.recover(box, tolerance=1e-6, input_bound=bound)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 5e-3


def test_a_constant_is_recovered() -> None:
    head = hard_head(6, seed=1)
    with_constant = SingleHead(head.W, head.v, None, 3.25)
    result = unsoftmax.recover(
        WithinTolerance(as_oracle(with_constant), 0.01), tolerance=0.01, input_bound=1e4
    )
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(with_constant, result.unwrap()) <= (result.error_bound or 0.0) + 0.01


def test_a_head_whose_loudest_direction_hears_nothing() -> None:
    """vᵀW = 0: the carrier is silent for every b, and no direction of W may be taken for an error of its
    row."""
    head = hard_head(9, seed=3)
    u = head.v / np.linalg.norm(head.v)
    quiet = SingleHead(head.W - np.outer(u, u @ head.W), head.v)
    result = unsoftmax.recover(
        bounded(WithinTolerance(as_oracle(quiet), 0.01), 1e3), learner=unsoftmax.within_tolerance(0.01)
    )
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(quiet, result.unwrap()) <= (result.error_bound or 0.0) < 1e-3


def test_a_column_that_tells_nothing_by_chance_does_not_cost_twice() -> None:
    head = hard_head(64, 4, seed=15)
    oracle = bounded(Rounded(as_oracle(head), 1), 10.0)
    result = unsoftmax.recover(oracle, learner=unsoftmax.within_tolerance(0.05), seed=15)
    model = result.unwrap()
    assert isinstance(model, SingleHead)
    assert relative_error(model.W, head.W) <= 4.0 * 0.05 / 10.0
    assert result.queries.learning <= 1.5 * head.parameters + 100


def test_another_function_is_no_head_with_errors() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((7, 5))

    def two_heads(X: Array) -> Array:
        return np.asarray(hard_head(5, seed=1)(X) + hard_head(5, seed=2)(X))

    for box in (
        lambda X: np.maximum(X.mean(axis=1) @ A.T, 0).sum(axis=1),
        two_heads,
        lambda X: np.tanh(hard_head(5, seed=3)(X)),
    ):
        result = unsoftmax.recover(box, width=5, tolerance=1e-4, input_bound=100.0)
        assert not result.status.recovered, result.reason


def test_scores_that_cannot_be_seen_are_not_called_zero() -> None:
    head = SingleHead(np.zeros((5, 5)), np.ones(5))
    result = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.01), tolerance=0.01, input_bound=100.0)
    assert result.status is Status.UNRESOLVED
    assert "W = 0" in result.reason


@pytest.mark.parametrize("r", [None, 4])
def test_noise_meets_its_figures_and_repeats_pay(r: int | None) -> None:
    errors: dict[int, list[float]] = {}
    for repeats in (1, 100):
        for seed in range(3):
            head = hard_head(8, r, seed=seed)
            oracle = bounded(Noisy(as_oracle(head), 0.01, seed), 1e4)
            result = unsoftmax.recover(oracle, learner=unsoftmax.noisy(0.01, repeats=repeats), seed=seed)
            assert result.status is Status.WITHIN_BOUND, result.reason
            model = result.unwrap()
            assert isinstance(model, SingleHead)
            assert distance(head, model) <= (result.error_bound or 0.0)
            errors.setdefault(repeats, []).append(relative_error(model.W, head.W))
            size = Size(8, (r or 8,), repeats=repeats)
            assert result.queries.learning <= unsoftmax.noisy().claim.queries(size)
    assert max(errors[1]) <= 1e-5
    assert np.mean(errors[1]) >= 8.0 * np.mean(errors[100])


def test_accuracy_is_bought_with_repeats() -> None:
    head = hard_head(6, seed=0)
    results = [
        unsoftmax.recover(
            bounded(Noisy(as_oracle(head), 0.01, 1), 100.0), learner=unsoftmax.noisy(0.01, accuracy=accuracy)
        )
        for accuracy in (1e-2, 1e-4)
    ]
    assert results[1].queries.learning > 5 * results[0].queries.learning
    assert distance(head, results[1].unwrap()) < 3e-4


@pytest.mark.parametrize("constant", [0.0, 4e-4, 0.7])
def test_a_constant_has_a_bound_of_its_own(constant: float) -> None:
    for seed in range(3):
        plain = hard_head(5, seed=seed)
        head = SingleHead(plain.W, plain.v, None, constant)
        result = unsoftmax.recover(
            WithinTolerance(as_oracle(head), 1e-3, seed), tolerance=1e-3, input_bound=1e3, seed=seed
        )
        if (
            constant == 4e-4 and result.model is None
        ):  # hidden by the tolerance, it may end the run, but not wrongly
            continue
        assert isinstance(result.model, SingleHead)
        assert result.error_bound is not None
        assert result.constant_bound is not None
        assert abs(float(result.model.c) - constant) <= result.constant_bound <= 0.01
        assert (
            head.distance(SingleHead(result.model.matrix, result.model.v, result.model.w0, constant))
            <= result.error_bound
        )
        assert result.as_json()["constant_bound"] == result.constant_bound
    assert unsoftmax.recover("demo:single-head?d=4").constant_bound is None
