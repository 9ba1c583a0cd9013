"""Products of the two-row fit against differences and a dense Jacobian; predictions against `MultiHead`."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.arrays import Array
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock, TwoRowFit, predict_block
from unsoftmax.solvers.head_fits.two_row_preconditioner import SharedReadouts
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine


def _heads(rng: np.random.Generator, d: int = 5, H: int = 2) -> HeadFactors:
    ranks = [3, 2][:H]
    return HeadFactors.of(list(rng.standard_normal((H, d, d + 1))), rng.standard_normal((H, d)), 0.3, ranks)


def _blocks(rng: np.random.Generator, d: int = 5, sizes: tuple[int, int] = (7, 6)) -> list[AnswerBlock]:
    n, m = sizes
    grid = AnswerBlock.of(
        rng.standard_normal((n, d)), rng.standard_normal((m, d)), rng.standard_normal((n, m)), "grid"
    )
    A, B = rng.standard_normal((2, n, d))
    return [grid, AnswerBlock.of(A, B, rng.standard_normal(n), "list", grid=False)]


def _jacobian(fit: TwoRowFit, heads: HeadFactors) -> Array:
    linear = fit.linearise(heads)
    return np.array([linear.forward(unit) for unit in np.eye(heads.unknowns)]).T


def test_predictions_are_those_of_the_model() -> None:
    rng = np.random.default_rng(0)
    heads, block = _heads(rng), _blocks(rng)[0]
    singles = [SingleHead(W[:, :-1], v, w0=W[:, -1]) for W, v in zip(heads.matrices, heads.v, strict=True)]
    sums = block.A[:, None] + block.B[None]
    rows = np.stack([sums, np.broadcast_to(block.B[None], sums.shape)], axis=2).reshape(-1, 2, 5)
    expected = MultiHead(singles, heads.c)(rows).reshape(7, 6)
    np.testing.assert_allclose(predict_block(heads, block), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_products_agree_with_differences_and_with_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads, fit = _heads(rng), TwoRowFit.of(_blocks(rng))
    direction = rng.standard_normal(heads.unknowns)
    h = 1e-6
    moved = (fit.residual(heads.moved(h * direction)) - fit.residual(heads.moved(-h * direction))) / (2 * h)
    jacobian, linear = _jacobian(fit, heads), fit.linearise(heads)
    np.testing.assert_allclose(jacobian @ direction, moved, atol=1e-7)
    y = rng.standard_normal(len(jacobian))
    np.testing.assert_allclose(linear.backward(y), jacobian.T @ y, atol=1e-12)
    np.testing.assert_allclose(linear.normal(), jacobian.T @ jacobian, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_the_diagonal_that_damps_is_nearly_that_of_the_normal_matrix(seed: int) -> None:
    """It comes from Kronecker products, and rows beyond a rank have none of it."""
    rng = np.random.default_rng(seed)
    heads, fit = _heads(rng), TwoRowFit.of(_blocks(rng, sizes=(40, 40)))
    exact, found = (_jacobian(fit, heads) ** 2).sum(axis=0), fit.linearise(heads).diagonal()
    used = exact > 0
    assert (found[~used] == 0).all()
    assert (found[used] / exact[used]).min() > 0.5
    assert (found[used] / exact[used]).max() < 5.0


@pytest.mark.parametrize("dense_limit", [3200, 0])
def test_a_start_thirty_per_cent_off_is_refined_to_the_truth(dense_limit: int) -> None:
    rng = np.random.default_rng(3)
    truth = _heads(rng)
    blocks = [b for _ in range(3) for b in _blocks(rng, sizes=(20, 20))]
    blocks = [AnswerBlock.of(b.A, b.B, predict_block(truth, b), b.group, b.grid) for b in blocks]
    matrices = truth.matrices + 0.1 * rng.standard_normal(truth.matrices.shape)
    start = HeadFactors.of(
        list(matrices), truth.v + 0.1 * rng.standard_normal(truth.v.shape), 0.2, truth.ranks
    )
    options = RefinementOptions(dense_limit=dense_limit, improvement=1e-6, inner_tolerance=1e-6)
    found = refine(TwoRowFit.of(blocks), start, options).state
    assert np.abs(found.matrices - truth.matrices).max() < 1e-8
    assert np.abs(found.v - truth.v).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_balancing_keeps_the_scores_and_evens_out_the_factors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads = _heads(rng).moved(0.5 * rng.standard_normal(_heads(rng).unknowns))
    cut = heads.cut(heads.ranks)  # rows beyond a rank may not move
    balanced = cut.moved(np.zeros(cut.unknowns)).balanced()
    np.testing.assert_allclose(balanced.matrices, cut.matrices, atol=1e-12)
    sizes = np.linalg.norm(balanced.K, axis=2), np.linalg.norm(balanced.Q, axis=2)
    np.testing.assert_allclose(sizes[0], sizes[1], atol=1e-12)


def test_a_wide_layer_is_refined_by_products_alone() -> None:
    """Where JᵀJ is too large to be held Kronecker products stand in for it."""
    rng, d, H, r = np.random.default_rng(0), 64, 3, 12
    truth = HeadFactors.of(
        [rng.standard_normal((d, r)) @ rng.standard_normal((r, d + 1)) / (d * np.sqrt(r)) for _ in range(H)],
        rng.standard_normal((H, d)),
        0.2,
        [r] * H,
    )
    assert truth.unknowns > RefinementOptions().dense_limit
    A, B = rng.standard_normal((2, 200, d))
    blocks = [AnswerBlock.of(3.0 * A, 3.0 * B, np.zeros((200, 200)), "grid")]
    answered = [AnswerBlock.of(b.A, b.B, predict_block(truth, b), b.group) for b in blocks]
    start = truth.moved(0.05 * rng.standard_normal(truth.unknowns) * np.sqrt(np.mean(truth.K**2)))
    found = refine(
        TwoRowFit.of(answered), start, RefinementOptions(iterations=8, inner_iterations=40, improvement=1e-6)
    )
    off = np.linalg.norm(found.state.matrices - truth.matrices) / np.linalg.norm(truth.matrices)
    assert off < 1e-4


def test_the_normal_matrix_of_all_readouts_is_right_where_shares_do_not_depend_on_the_rows() -> None:
    rng = np.random.default_rng(5)
    silent = HeadFactors.of([1e-9 * np.ones((5, 6))] * 2, rng.standard_normal((2, 5)), 0.0, [1, 1])
    fit = TwoRowFit.of(_blocks(rng))
    jacobian = _jacobian(fit, silent)
    of_readouts = np.r_[tuple(silent.per_head * (h + 1) - 5 + np.arange(5) for h in range(2))]
    readouts = SharedReadouts()
    for block in fit.blocks:
        shares = np.full((2, *block.answers.shape), 0.5)
        readouts.add(block.group, (block.A, block.B), block.weights, shares, block.grid)
    exact = (jacobian.T @ jacobian)[np.ix_(of_readouts, of_readouts)]
    np.testing.assert_allclose(readouts.normal, exact, atol=1e-6)


def test_many_unknowns_are_fitted_with_rows_that_show_one_head_each() -> None:
    """Products then leave out the scores of heads that a block does not show; the fit is as exact."""
    rng = np.random.default_rng(6)
    d, H, rank = 64, 4, 40
    truth = HeadFactors.of(
        list(rng.standard_normal((H, d, d + 1)) / d), rng.standard_normal((H, d)) / 8, 0.1, [rank] * H
    )
    assert truth.unknowns > 20_000
    blocks = []
    for h in range(H):
        others = np.linalg.svd(np.delete(truth.v, h, axis=0))[2][: H - 1]
        A = rng.standard_normal((70, d))
        A, B = A - A @ others.T @ others, rng.standard_normal((90, d))
        blocks.append(AnswerBlock.of(A, B, predict_block(truth, AnswerBlock.of(A, B, A @ B.T, "")), f"{h}"))
    A, B = rng.standard_normal((2, 150, d))
    blocks.append(AnswerBlock.of(A, B, predict_block(truth, AnswerBlock.of(A, B, A @ B.T, "")), "all"))
    fit = TwoRowFit.of(blocks)
    start = truth.moved(1e-3 * rng.standard_normal(truth.unknowns))
    linear = fit.linearise(start)
    x, y = rng.standard_normal(truth.unknowns), rng.standard_normal(fit.answers)
    assert linear.forward(x) @ y == pytest.approx(x @ linear.backward(y), rel=1e-3)
    refined = refine(fit, start, RefinementOptions(iterations=6, damping=1e-7, inner_iterations=40))
    assert refined.rms[-1] < 1e-3 * refined.rms[0]
