"""What preconditions the two fits of a one-layer decoder."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.learners.language_model.attention_metric import AttentionMetric
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState, Prompted
from unsoftmax.learners.language_model.one_row_fit import OneRowFit, OneRowState, states_of_rows
from unsoftmax.models.language_model import GatedNetwork, random_language_model
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine


@pytest.mark.parametrize("drifting", [False, True])
@pytest.mark.parametrize(("d", "heads", "groups"), [(8, 2, 1), (8, 4, 2), (12, 2, 2), (8, 1, 1)])
def test_the_metric_of_attention_is_near_the_normal_matrix(
    d: int, heads: int, groups: int, drifting: bool
) -> None:
    """Eigenvalues of one by the other, but for those of symmetries, are near one."""
    layer = random_language_model(d, 8, heads=heads, groups=groups, seed=1).canonical().layers[0]
    assert isinstance(layer.network, GatedNetwork)
    width, rng = d // heads, np.random.default_rng(0)
    drift = 0.01 * rng.standard_normal((groups, width, width)) if drifting else None
    state = AttentionState(layer.attention, float(np.log(100.0)), drift)
    after = AfterAttention(layer.network, 1e-6, 1e-6)
    data = []
    for length in (2, 5):
        rows = rng.standard_normal((200, length, d))
        normed = rows / np.sqrt((rows * rows).mean(axis=2, keepdims=True))
        data.append(Prompted(normed, rows[:, -1], np.zeros((200, d))))
    passes = [AttentionPass(state, each, after) for each in data]
    jacobian = np.concatenate([each.dense() for each in passes])
    metric = AttentionMetric(state, passes)
    squares = (jacobian**2).sum(axis=0)
    shown = squares > 0.0  # heads of one plane do not show the rotary base
    assert np.abs(np.log(metric.squares[shown] / squares[shown])).max() < 2.0
    inverse = metric.inverse(np.zeros(state.unknowns))
    solved = np.array([inverse(row) for row in jacobian.T @ jacobian])
    values = np.sort(np.linalg.eigvals(solved).real)[::-1]
    # planes that turn by one complex factor, values by a matrix; a drift makes up for all mixing of planes
    symmetries = groups * (width + width**2) if not drifting else groups * 2 * width**2
    symmetries += int(not shown[-1 if not drifting else -1 - groups * width**2])
    seen = values[: state.unknowns - symmetries]
    assert values[0] < 30.0
    assert seen[-1] > 1e-3
    step, weights = rng.standard_normal(state.unknowns), rng.standard_normal(len(jacobian))
    cut = np.split(weights, [passes[0].data.seen.size])
    forward = np.concatenate([each.forward(state.split(step)).ravel() for each in passes])
    backward = sum(
        each.backward(piece.reshape(each.data.seen.shape)).flat()
        for each, piece in zip(passes, cut, strict=True)
    )
    np.testing.assert_allclose(forward, jacobian @ step, atol=1e-10)
    np.testing.assert_allclose(backward, jacobian.T @ weights, atol=1e-10)


def _rows(count: int, d: int, rng: np.random.Generator) -> Array:
    sizes = 2.0 * np.exp(rng.uniform(-1.0, 1.0, count))
    sizes[: count // 6] = np.exp(rng.uniform(np.log(1e-8), 1.0, count // 6))
    return np.asarray(sizes[:, None] * rng.standard_normal((count, d)))


def test_rows_of_all_sizes_take_few_steps() -> None:
    """Rows far below √eps and usual rows in one fit: three hundred products a step are enough."""
    d, m = 16, 24
    layer = random_language_model(d, m, heads=4, groups=2, seed=5).canonical().layers[0]
    rng = np.random.default_rng(1)
    path = rng.standard_normal((d, d)) / np.sqrt(d)
    net = layer.network
    assert isinstance(net, GatedNetwork)
    truth = OneRowState(path, net.gate, net.up, net.down, np.log([1e-6, 1e-6, 1e-6]))
    rows = _rows(2 * truth.unknowns // (d - 1), d, rng)
    start = truth.moved(1e-3 * rng.standard_normal(truth.unknowns))
    options = RefinementOptions(
        iterations=6,
        damping=1e-6,
        least_damping=1e-14,
        dense_limit=0,
        inner_iterations=300,
        inner_tolerance=1e-7,
    )
    found = refine(OneRowFit(rows, states_of_rows(truth, rows)), start, options)
    assert found.rms[-1] < 1e-13, found.rms
