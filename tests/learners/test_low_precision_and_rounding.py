"""Answers of few digits, recovered to float64."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import bounded, distance, hard_head, relative_error
from unsoftmax import LowPrecision, Rounded, SingleHead, Size, Status, as_oracle
from unsoftmax.arrays import Array


@pytest.mark.parametrize(
    ("precision", "most", "accuracy"),
    [("float32", 3.0, 1e-13), ("bfloat16", 8.5, 1e-12), ("float16", 5.5, 1e-4)],
)
@pytest.mark.parametrize(("d", "r"), [(16, None), (24, 3)])
def test_low_precision_answers(precision: str, most: float, accuracy: float, d: int, r: int | None) -> None:
    for seed, scale in enumerate((1.0, 1e-2, 30.0)):
        head = hard_head(d, r, seed=seed, scale=scale)
        result = unsoftmax.recover(
            LowPrecision(as_oracle(head), precision), learner=unsoftmax.low_precision(precision), seed=seed
        )
        assert result.status is Status.WITHIN_BOUND, result.reason
        model = result.unwrap()
        assert isinstance(model, SingleHead)
        assert relative_error(model.W, head.W) <= accuracy
        assert distance(head, model) <= (result.error_bound or 0.0)
        assert result.queries.learning <= most * head.parameters


def test_the_length_of_v_survives_a_detour_through_float32() -> None:
    """bfloat16 made from float32: every threshold is moved by half a float32 step, up or down."""
    for seed in range(6):
        head = hard_head(4, seed=seed)
        model = unsoftmax.recover(LowPrecision(as_oracle(head), "bfloat16"), seed=seed).unwrap()
        assert isinstance(model, SingleHead)
        assert abs(np.linalg.norm(model.v) / np.linalg.norm(head.v) - 1.0) < 1e-13


def test_low_precision_inside_the_target_is_not_called_better_than_it_is() -> None:
    """A head that computes in float32: its answers look the same, but no pass gets beyond their noise."""
    head = hard_head(6, seed=3)
    W, v = head.W.astype(np.float32), head.v.astype(np.float32)

    def box(X: Array) -> Array:
        x = X.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", x, x[:, -1] @ W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(
            np.einsum("bn,bn->b", weights / weights.sum(axis=1, keepdims=True), x @ v), dtype=np.float64
        )

    for seed in range(3):
        result = unsoftmax.recover(box, width=6, seed=seed)
        assert result.status is not Status.EXACT
        if result.model is not None:
            assert distance(head, result.unwrap()) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(
    ("d", "r", "decimals", "R", "most"),
    [(16, None, 2, 1e4, 8.0), (16, None, 0, 100.0, 70.0), (16, 4, 0, 100.0, 70.0), (10, 2, 0, 100.0, 90.0)],
)
def test_rounded_answers_on_a_known_grid(d: int, r: int | None, decimals: int, R: float, most: float) -> None:
    learner = unsoftmax.rounded(decimals)
    for seed in range(2):
        head = hard_head(d, r, seed=seed)
        oracle = bounded(Rounded(as_oracle(head), decimals), R)
        result = unsoftmax.recover(oracle, learner=learner, seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        model = result.unwrap()
        assert isinstance(model, SingleHead)
        assert relative_error(model.W, head.W) <= 1e-12
        assert distance(head, model) <= (result.error_bound or 0.0) < 1e-9
        assert result.queries.learning <= min(
            most * head.parameters, learner.claim.queries(Size(d, (r or d,)))
        )
        assert oracle.norm <= R * (1 + 1e-12)


@pytest.mark.parametrize("decimals", [4, 5])
def test_fine_answers_to_short_rows(decimals: int) -> None:
    """Quick refinements need long rows; with short ones scores are read from steps."""
    for seed in (0, 2):
        head = unsoftmax.random_single_head(6, seed=seed)
        result = unsoftmax.recover(bounded(Rounded(as_oracle(head), decimals), 5.0), seed=seed)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) <= 1e-9
        assert result.claim is not None
        assert result.queries.learning <= result.claim.queries(Size(6, (6,)))


def test_a_tolerance_that_is_taken_for_rounding_does_not_pass() -> None:
    head = hard_head(6, seed=1)
    oracle = bounded(unsoftmax.WithinTolerance(as_oracle(head), 0.005), 1e4)
    result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(2))
    assert result.model is None or distance(head, result.unwrap()) <= (result.error_bound or 0.0)


def test_rows_stay_within_the_bound_where_w_is_heard_along_v_alone() -> None:
    head = hard_head(6, seed=2)
    along = SingleHead(np.outer(head.v, head.W[0]), head.v)
    oracle = bounded(Rounded(as_oracle(along), 6), 10.0)
    result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(6))
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(along, result.unwrap()) <= (result.error_bound or 0.0) < 1e-8
    assert oracle.norm <= 10.0 * (1 + 1e-12)


def test_a_constant_below_the_grid_is_not_passed_over() -> None:
    head = hard_head(6, seed=2)
    oracle = bounded(Rounded(as_oracle(SingleHead(head.W, head.v, None, 1e-3)), 2), 1e4)
    result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(2))
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert "constant" in result.reason
    model = result.unwrap()
    assert isinstance(model, SingleHead)
    assert relative_error(model.W, head.W) <= (result.error_bound or 0.0)


def test_the_bound_covers_scores_that_short_rows_hardly_move() -> None:
    """Steps come from b·v alone here, so a step in the right place says little about W."""
    for seed in range(3):
        head = hard_head(3, seed=seed, scale=1e-6)
        result = unsoftmax.recover(
            bounded(Rounded(as_oracle(head), 6), 10.0), learner=unsoftmax.rounded(6), seed=seed
        )
        assert result.model is None or distance(head, result.model) <= (result.error_bound or 0.0), seed


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_a_query_bias_below_the_tolerance_is_in_the_bound(size: float) -> None:
    for d in (1, 4):
        head = hard_head(d, seed=6)
        biased = SingleHead(head.W, head.v, size * np.linspace(0.5, 1.0, d))
        for decimals, R in ((0, 100.0), (6, 10.0)):
            result = unsoftmax.recover(
                bounded(Rounded(as_oracle(biased), decimals), R), learner=unsoftmax.rounded(decimals)
            )
            assert result.model is None or distance(biased, result.model) <= (result.error_bound or 0.0), (
                d,
                decimals,
            )


def test_rows_stay_within_the_bound_where_v_hears_no_score() -> None:
    rng = np.random.default_rng(2)
    v = np.array([0.6, 0.8])
    head = SingleHead(np.outer([0.8, -0.6], rng.standard_normal(2)), v)
    oracle = bounded(Rounded(as_oracle(head), 0), 100.0)
    result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(0))
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(head, result.unwrap()) <= (result.error_bound or 0.0) < 1e-9
    assert oracle.norm <= 100.0 * (1 + 1e-12)


def test_one_number_from_short_rows_and_float32() -> None:
    """With d = 1 every fresh probe is the one that was measured; only float64 rounding tells how well."""
    for W, v in ((1.0, 1.0), (1e-6, 1.0), (-0.7, 1e6)):
        head = SingleHead([[W]], [v])
        oracle = bounded(LowPrecision(as_oracle(head), "float32"), 1.7 / v)
        result = unsoftmax.recover(oracle, learner=unsoftmax.low_precision("float32"))
        assert result.model is None or distance(head, result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_loud_heads_never_leave_the_format(biases: bool, scale: float) -> None:
    plain = unsoftmax.random_single_head(6, seed=2, biases=biases, scale=scale)
    head = SingleHead(plain.W, 500.0 * plain.v, plain.w0)
    result = unsoftmax.recover(LowPrecision(as_oracle(head), "float16"))
    assert result.error_bound is not None
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) <= result.error_bound < 1e-5
