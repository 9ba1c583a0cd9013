"""A query bias behind answers with errors: recovered with a bound that covers, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import biased_head, bounded, distance, hard_head, pushed_by
from unsoftmax import (
    Clipped,
    FlippedLabels,
    Labels,
    LowPrecision,
    Noisy,
    Rounded,
    SingleHead,
    Status,
    WithinTolerance,
    as_oracle,
)
from unsoftmax.arrays import Array


@pytest.mark.parametrize(("d", "r"), [(3, None), (8, None), (16, None), (16, 2), (3, 2)])
@pytest.mark.parametrize("bias", [0.1, 1.0, 5.0])
def test_error_bound_and_row_lengths(d: int, r: int | None, bias: float) -> None:
    for seed, (tau, R) in enumerate([(1e-2, 10.0), (1e-2, 100.0), (1e-4, 1e4)]):
        head = biased_head(d, r, seed=seed, bias=bias)
        oracle = bounded(
            Rounded(as_oracle(head), 4)
            if tau < 1e-3 and seed % 2
            else WithinTolerance(as_oracle(head), tau, seed),
            R,
        )
        result = unsoftmax.recover(oracle, learner=unsoftmax.within_tolerance(tau), seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        error = distance(head, result.unwrap())
        assert error <= (result.error_bound or 0.0) < 0.1
        assert error <= 20.0 * tau / R
        assert oracle.norm <= R * (1 + 1e-12)


@pytest.mark.parametrize("bias", [1e-3, 1.0, 300.0])
def test_rows_without_a_bound_end_at_the_rounding_of_scores(bias: float) -> None:
    head = biased_head(6, seed=3, bias=bias)
    result = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.01), tolerance=0.01)
    assert result.status is Status.WITHIN_BOUND, result.reason
    # the bound rests on what fresh sequences show, and varies with them by a factor of two
    assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 2e-5


def test_adversarial_errors_stay_under_the_bound() -> None:
    """Every answer pushed towards zero, away from it, or to one side by the whole tolerance."""
    head = biased_head(10, seed=1, bias=1.0)
    for box in pushed_by(head, 0.1):
        result = unsoftmax.recover(box, width=head.width, tolerance=0.1, input_bound=1e3)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-2


@pytest.mark.parametrize("scale", [1e-4, 300.0])
def test_weak_and_strong_scores_and_a_constant(scale: float) -> None:
    plain = biased_head(7, seed=2, bias=1.0)
    assert plain.w0 is not None
    head = SingleHead(scale * plain.W, 3.0 * plain.v, scale * plain.w0, 2.5)
    result = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.01), tolerance=0.01, input_bound=1e5)
    assert result.status is Status.WITHIN_BOUND, result.reason
    found = result.unwrap()
    assert isinstance(found, SingleHead)
    same_constant = SingleHead(found.W, found.v, found.w0, head.c)
    assert distance(head, same_constant) <= (result.error_bound or 0.0) < 1e-4
    assert abs(float(found.c) - 2.5) <= 0.01


@pytest.mark.parametrize("angle", [0.0, 1e-3, 0.1])
def test_a_bias_along_v_leaves_no_loud_carrier_at_the_row_of_zeros(angle: float) -> None:
    head = hard_head(6, seed=5)
    beside = np.linalg.qr(np.column_stack([head.v, np.ones(6)]))[0][:, 1]
    biased = SingleHead(head.W, head.v, 0.7 * (np.cos(angle) * head.v + np.sin(angle) * beside))
    result = unsoftmax.recover(WithinTolerance(as_oracle(biased), 0.01), tolerance=0.01, input_bound=1e3)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(biased, result.unwrap()) <= (result.error_bound or 0.0) < 1e-2


@pytest.mark.parametrize("r", [None, 2])
def test_noise_and_repeats(r: int | None) -> None:
    errors = []
    for repeats in (1, 100):
        head = biased_head(8, r, seed=4, bias=1.0)
        result = unsoftmax.recover(
            bounded(Noisy(as_oracle(head), 0.01, 4), 1e3), learner=unsoftmax.noisy(0.01, repeats=repeats)
        )
        assert result.status is Status.WITHIN_BOUND, result.reason
        errors.append(distance(head, result.unwrap()))
        assert errors[-1] <= (result.error_bound or 0.0) < 1e-3
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize(("precision", "exact"), [("float32", 2e-14), ("bfloat16", 2e-14), ("float16", 5e-5)])
@pytest.mark.parametrize("bias", [1e-9, 1e-3, 1.0, 5.0])
def test_low_precision_ends_where_it_ends_without_a_bias(precision: str, exact: float, bias: float) -> None:
    for seed, (d, r, R) in enumerate([(5, None, None), (8, 2, 10.0)]):
        head = biased_head(d, r, seed=seed, bias=bias)
        box = LowPrecision(as_oracle(head), precision)
        oracle = bounded(box, 1e9 if R is None else R)
        result = unsoftmax.recover(
            box if R is None else oracle, learner=unsoftmax.low_precision(precision), seed=seed
        )
        assert result.status is Status.WITHIN_BOUND, result.reason
        error = distance(head, result.unwrap())
        assert error <= exact
        # bfloat16 numbers come through float32: a factor of a few of its roundings could not have shown
        shows = 3e-7 if precision == "bfloat16" else 1e3 * exact
        assert error <= (result.error_bound or 0.0) < shows
        assert R is None or oracle.norm <= R * (1 + 1e-12)


@pytest.mark.parametrize(("decimals", "R"), [(2, 100.0), (4, 100.0), (0, 1e4)])
def test_rounded_answers_end_at_float64(decimals: int, R: float) -> None:
    for seed, (d, r, bias) in enumerate([(3, None, 5.0), (6, None, 1.0), (6, 2, 0.1)]):
        head = biased_head(d, r, seed=seed, bias=bias)
        oracle = bounded(Rounded(as_oracle(head), decimals), R)
        result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(decimals), seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-10
        assert oracle.norm <= R * (1 + 1e-12)


@pytest.mark.parametrize("bias", [1e-8, 0.1, 1.0, 5.0])
def test_labels_tell_w0_too(bias: float) -> None:
    for seed, (d, r, R) in enumerate([(3, None, None), (6, None, 100.0), (8, 2, None)]):
        head = biased_head(d, r, seed=seed, bias=bias)
        oracle = bounded(
            Labels(as_oracle(SingleHead(head.W, 7.0 * head.v, head.w0))), 1e9 if R is None else R
        )
        result = unsoftmax.recover(oracle, learner=unsoftmax.from_labels(), seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-10
        assert R is None or oracle.norm <= R * (1 + 1e-12)


def test_clipped_answers_with_errors() -> None:
    head = biased_head(5, seed=2, bias=1.0)
    for box, inner in (
        (WithinTolerance(as_oracle(head), 1e-3), unsoftmax.within_tolerance(1e-3)),
        (LowPrecision(as_oracle(head), "float32"), unsoftmax.low_precision("float32")),
    ):
        result = unsoftmax.recover(Clipped(box, 5.0), learner=unsoftmax.clipped(5.0, inner))
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-2


def test_flipped_labels_and_a_query_bias_are_refused_by_name() -> None:
    result = unsoftmax.recover(
        FlippedLabels(as_oracle(biased_head(5, seed=4)), 0.05, 1), learner=unsoftmax.from_labels(24, 0.05)
    )
    assert result.status is Status.OUTSIDE_CLASS
    assert "query bias" in result.reason


def test_coarse_steps_leave_what_the_tolerance_tells() -> None:
    head = biased_head(8, seed=0, bias=0.1)
    result = unsoftmax.recover(bounded(Rounded(as_oracle(head), 0), 100.0), learner=unsoftmax.rounded(0))
    assert result.status in (Status.WITHIN_BOUND, Status.UNRESOLVED), result.reason
    if result.model is not None:
        assert distance(head, result.model) <= (result.error_bound or 0.0)


def test_the_answers_are_identified_and_the_bias_is_found() -> None:
    head = biased_head(6, seed=3, bias=1.0)
    for oracle in (
        LowPrecision(as_oracle(head), "float32"),
        bounded(Rounded(as_oracle(head), 2), 1e3),
        WithinTolerance(as_oracle(head), 1e-3),
    ):
        result = unsoftmax.recover(oracle)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-5


def test_short_rows_are_refused_with_advice() -> None:
    result = unsoftmax.recover(
        WithinTolerance(as_oracle(biased_head(8, bias=5.0)), 0.1), tolerance=0.1, input_bound=3.0
    )
    assert result.status is Status.UNRESOLVED
    assert "input_bound" in result.reason
    assert result.model is None


def test_scores_of_the_bias_alone_are_no_head_with_a_guessed_W() -> None:
    """W = 0 cannot be told from a W that is too small to be heard."""
    head = SingleHead(np.zeros((5, 5)), np.ones(5), np.array([0.3, -0.2, 0.5, 0.1, 0.4]))
    result = unsoftmax.recover(WithinTolerance(as_oracle(head), 0.01), tolerance=0.01, input_bound=100.0)
    assert not result.status.recovered
    assert result.model is None


def test_other_functions_that_move_around_a_row_of_zeros() -> None:
    head = biased_head(5, seed=1, bias=1.0)
    other = biased_head(5, seed=2, bias=1.0)

    def two_heads(X: Array) -> Array:
        return np.asarray(head(X) + other(X))

    def first_row_counts_twice(X: Array) -> Array:
        return head(np.concatenate([X[:, :1], X], axis=1)) if X.shape[1] > 1 else head(X)

    def cubic(X: Array) -> Array:
        return np.asarray(head(X) + 1e-2 * head(X) ** 3 * (X.shape[1] > 1))

    for box in (two_heads, first_row_counts_twice, cubic):
        for R in (10.0, 1e3):
            result = unsoftmax.recover(box, width=5, tolerance=1e-3, input_bound=R)
            assert not result.status.recovered, result.reason
            assert result.model is None


def test_one_coordinate_leaves_no_carrier() -> None:
    result = unsoftmax.recover(SingleHead([[1.5]], [1.0], [0.7]), tolerance=0.01, input_bound=100.0)
    assert result.status is Status.UNRESOLVED  # a member of the class, which these answers are not enough for
    assert "query bias" in result.reason


def test_a_skip_term_or_a_temperature_is_not_taken_for_a_biased_head() -> None:
    head = biased_head(5, seed=1, bias=1.0)
    assert head.w0 is not None

    def with_skip(X: Array) -> Array:
        return np.asarray(head(X) + 0.1 * X[:, -1].sum(axis=1) * (X.shape[1] > 1))

    def with_temperature(X: Array) -> Array:
        part = 1.0 / np.log(1.0 + X.shape[1])
        return SingleHead(part * head.W, head.v, part * head.w0)(X)

    for box in (with_skip, with_temperature):
        for options in ({"tolerance": 1e-3, "input_bound": 100.0}, {"tolerance": 1e-2, "input_bound": 10.0}):
            result = unsoftmax.recover(box, width=5, **options)  # type: ignore[arg-type]
            assert not result.status.recovered, result.reason
        assert (
            unsoftmax.recover(
                LowPrecision(as_oracle(box), "bfloat16"), width=5, learner=unsoftmax.low_precision("bfloat16")
            ).model
            is None
        )
        assert (
            unsoftmax.recover(Labels(as_oracle(box)), width=5, learner=unsoftmax.from_labels()).model is None
        )
