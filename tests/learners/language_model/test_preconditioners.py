"""The blocks that precondition the two fits of a one-layer decoder."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.learners.language_model.attention_blocks import AttentionBlocks
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState, Prompted
from unsoftmax.learners.language_model.one_row_fit import OneRowFit, OneRowState, states_of_rows
from unsoftmax.models.language_model import GatedNetwork, random_language_model
from unsoftmax.solvers.joint_refinement import RefinementOptions, refine


@pytest.mark.parametrize(("d", "heads", "groups"), [(8, 2, 1), (8, 4, 2), (12, 2, 2)])
def test_blocks_of_attention_are_those_of_the_jacobian(d: int, heads: int, groups: int) -> None:
    layer = random_language_model(d, 8, heads=heads, groups=groups, seed=1).canonical().layers[0]
    assert isinstance(layer.network, GatedNetwork)
    state = AttentionState(layer.attention, float(np.log(1e4)))
    after = AfterAttention(layer.network, 1e-6, 1e-6)
    rng = np.random.default_rng(0)
    data = [
        Prompted(
            rng.standard_normal((7, length, d)), rng.standard_normal((7, d)), rng.standard_normal((7, d))
        )
        for length in (2, 5)
    ]
    passes = [AttentionPass(state, each, after) for each in data]
    jacobian = np.concatenate([each.dense() for each in passes])
    normal = jacobian.T @ jacobian
    blocks = AttentionBlocks(state, passes)
    for pair, found in zip(blocks.places, blocks.blocks, strict=True):
        for own, block in zip(pair, found, strict=True):
            np.testing.assert_allclose(block, normal[np.ix_(own, own)], atol=1e-12 * np.abs(block).max())
    np.testing.assert_allclose(blocks.squares, np.diag(normal), rtol=1e-9)


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
