"""Products of the sequence fit against differences and a dense Jacobian; predictions against `MultiHead`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unsoftmax.arrays import Array
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits import sequence_fit
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock, SequenceFit, predict_sequences
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine


def _heads(rng: np.random.Generator, d: int = 5, m: int = 4) -> VectorHeads:
    matrices, values = rng.standard_normal((2, d, d + 1)), rng.standard_normal((2, d, m))
    return VectorHeads.of(list(matrices), list(values), rng.standard_normal(m), [3, 2], [1, 2])


def _block(
    rng: np.random.Generator, count: int = 6, length: int = 4, d: int = 5, m: int = 4
) -> SequenceBlock:
    return SequenceBlock.of(rng.standard_normal((count, length, d)), rng.standard_normal((count, m)), "some")


def test_predictions_are_those_of_the_model() -> None:
    rng = np.random.default_rng(0)
    heads, block = _heads(rng), _block(rng)
    singles = [
        SingleHead(W[:, :-1], V, w0=W[:, -1]) for W, V in zip(heads.matrices, heads.values, strict=True)
    ]
    np.testing.assert_allclose(
        predict_sequences(heads, block), MultiHead(singles, heads.c)(block.rows), atol=1e-12
    )


@pytest.mark.parametrize("seed", range(3))
def test_products_agree_with_differences_and_with_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads, fit = _heads(rng), SequenceFit.of([_block(rng), _block(rng, length=2)])
    linear = fit.linearise(heads)
    direction, h = rng.standard_normal(heads.unknowns), 1e-6
    moved = (fit.residual(heads.moved(h * direction)) - fit.residual(heads.moved(-h * direction))) / (2 * h)
    jacobian = np.array([linear.forward(unit) for unit in np.eye(heads.unknowns)]).T
    np.testing.assert_allclose(jacobian @ direction, moved, atol=1e-7)
    y = rng.standard_normal(len(jacobian))
    np.testing.assert_allclose(linear.backward(y), jacobian.T @ y, atol=1e-12)
    np.testing.assert_allclose(linear.normal(), jacobian.T @ jacobian, atol=1e-11)


def test_products_do_not_depend_on_what_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    heads, fit = _heads(rng), SequenceFit.of([_block(rng), _block(rng, length=2), _block(rng, length=3)])
    whole = fit.linearise(heads)
    assert len(whole.kept) == 3
    monkeypatch.setattr(sequence_fit, "_KEPT", 0)
    little = fit.linearise(heads)
    direction = rng.standard_normal(heads.unknowns)
    y = whole.forward(direction)
    np.testing.assert_array_equal(little.forward(direction), y)
    np.testing.assert_array_equal(little.backward(y), whole.backward(y))
    np.testing.assert_array_equal(little.shares(), whole.shares())
    assert len(little.kept) == 1


def test_a_fit_with_even_weights_arrives_where_a_few_sequences_show_nearly_everything() -> None:
    rng = np.random.default_rng(5)
    truth = _heads(rng)
    block = _block(rng, count=200)
    rows = block.rows * np.where(np.arange(200) < 20, 1.0, 0.1)[:, None, None]
    block = SequenceBlock.of(rows, predict_sequences(truth, replace(block, rows=rows)), "some")
    matrices = truth.matrices + 0.02 * rng.standard_normal(truth.matrices.shape)
    start = VectorHeads.of(list(matrices), list(truth.values), truth.c, truth.ranks, truth.value_ranks)
    fit = SequenceFit.of([block])
    even = fit.evened(start)
    shares, evened = (each.linearise(start).shares() for each in (fit, even))
    assert evened.max() / np.median(evened) < 0.01 * shares.max() / np.median(shares)
    options = RefinementOptions(
        iterations=6, dense_limit=0, improvement=0.0, inner_tolerance=1e-8, inner_iterations=40
    )
    plain, found = (refine(each, start, options).state.matrices for each in (fit, even))
    assert np.abs(found - truth.matrices).max() < 0.1 * np.abs(plain - truth.matrices).max()


def test_values_are_found_where_heads_mix_nearly_the_same() -> None:
    """Weak scores, and outputs that fill the whole answer: what one factor of the values can do the other can
    do as well. Forty inner steps lower the residual 500 times where each factor is inverted alone."""
    rng = np.random.default_rng(1)
    heads, d, rank = 4, 16, 4

    def low(columns: int) -> Array:
        left, right = rng.standard_normal((heads, d, rank)), rng.standard_normal((heads, rank, columns))
        return np.asarray(left @ right)

    ranks = [rank] * heads
    truth = VectorHeads.of(list(low(d + 1) / 4), list(low(d)), np.zeros(d), ranks, ranks)
    empty = SequenceBlock.of(0.15 * rng.standard_normal((400, 6, d)), np.zeros((400, d)), "some")
    fit = SequenceFit.of([replace(empty, answers=predict_sequences(truth, empty))])
    off = truth.values + 1e-4 * rng.standard_normal(truth.values.shape)
    start = VectorHeads.of(list(truth.matrices), list(off), truth.c, ranks, ranks)
    options = RefinementOptions(
        iterations=1, damping=1e-9, dense_limit=0, inner_iterations=40, inner_tolerance=1e-8
    )
    refined = refine(fit, start, options)
    assert refined.rms[-1] < refined.rms[0] / 3000


def test_one_sequence_far_off_counts_as_little_as_others() -> None:
    rng = np.random.default_rng(2)
    truth, block = _heads(rng), _block(rng, count=30)
    answers = predict_sequences(truth, block) + 1e-3 * rng.standard_normal(block.answers.shape)
    answers[0] += 10.0
    fit = SequenceFit.of([replace(block, answers=answers)]).capped(truth, 3.0)
    left = np.linalg.norm(fit.residual(truth).reshape(30, -1), axis=1)
    assert left.max() < 5.0 * np.median(left)


def test_rows_that_float32_holds_are_held_in_it() -> None:
    rng = np.random.default_rng(6)
    rows, answers = rng.standard_normal((3, 2, 5)), np.zeros((3, 4))
    assert SequenceBlock.of(rows, answers, "any").rows.dtype == np.float64
    assert (
        SequenceBlock.of(rows.astype(np.float32).astype(np.float64), answers, "short").rows.dtype
        == np.float32
    )


@pytest.mark.parametrize("dense_limit", [3200, 0])
def test_a_start_twenty_per_cent_off_is_refined_to_the_truth(dense_limit: int) -> None:
    rng = np.random.default_rng(3)
    truth = _heads(rng)
    block = _block(rng, count=150)
    block = SequenceBlock.of(block.rows, predict_sequences(truth, block), "some")
    matrices = truth.matrices + 0.1 * rng.standard_normal(truth.matrices.shape)
    values = truth.values + 0.1 * rng.standard_normal(truth.values.shape)
    start = VectorHeads.of(list(matrices), list(values), truth.c, truth.ranks, truth.value_ranks)
    options = RefinementOptions(
        dense_limit=dense_limit, improvement=1e-6, inner_tolerance=1e-6, inner_iterations=300
    )
    found = refine(SequenceFit.of([block]), start, options).state
    assert np.abs(found.matrices - truth.matrices).max() < 1e-7
    assert np.abs(found.values - truth.values).max() < 1e-8
