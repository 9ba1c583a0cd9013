"""Rotary planes that hardly turn: mixed in a start, told apart by a drift of their turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.learners.language_model.attention_fit import AttentionFit
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState, Prompted
from unsoftmax.learners.language_model.slow_planes import settle_slow_planes
from unsoftmax.models.language_model import GatedNetwork, random_language_model
from unsoftmax.models.language_model.distance import attention_distance
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

_NOISE = 3e-7  # what float32 leaves of a state
_OPTIONS = RefinementOptions(
    iterations=8,
    damping=1e-12,
    least_damping=1e-14,
    improvement=0.5,
    inner_iterations=400,
    inner_tolerance=1e-4,
)


def _fit_of(truth: AttentionState, after: AfterAttention, rng: np.random.Generator) -> AttentionFit:
    d = truth.attention.width
    data = []
    for length in (2, 3, 6, 24):
        rows = 2.0 * rng.standard_normal((60, length, d))
        normed = rows / np.sqrt((rows * rows).mean(axis=2, keepdims=True) + 1e-6)
        asked = Prompted(normed, rows[:, -1], np.zeros((60, d)))
        seen = AttentionPass(truth, asked, after).seen
        data.append(replace(asked, seen=seen + _NOISE * rng.standard_normal(seen.shape)))
    return AttentionFit(data, after)


def _mixed(truth: AttentionState, rng: np.random.Generator) -> AttentionState:
    """Planes 2 and 3 of four in another basis, which changes scores at large distances only."""
    slow = np.array([2, 3, 6, 7])
    mix = np.eye(4) + 0.25 * rng.standard_normal((4, 4))
    query, key = truth.attention.query.copy(), truth.attention.key.copy()
    key[slow] = mix.T @ key[slow]
    query[slow] = np.linalg.solve(mix, query[slow])
    return AttentionState(replace(truth.attention, query=query, key=key), truth.log_theta)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mixed_planes_are_told_apart(seed: int) -> None:
    layer = random_language_model(8, 8, heads=1, seed=seed).canonical().layers[0]
    assert isinstance(layer.network, GatedNetwork)
    rng = np.random.default_rng(seed)
    truth = AttentionState(layer.attention, float(np.log(1e4)))
    fit = _fit_of(truth, AfterAttention(layer.network, 1e-6, 1e-6), rng)
    start = _mixed(truth, rng)
    settled = settle_slow_planes(fit, start, _OPTIONS)
    assert settled.drift is None
    last = refine(fit, settled, _OPTIONS)
    assert last.rms[-1] < 1.2 * _NOISE
    settled = last.state
    assert attention_distance(truth.attention, settled.attention, rotary=True) < 2e-3
    plain = refine(fit, start, _OPTIONS)
    assert plain.rms[-1] > 10.0 * _NOISE


def test_planes_that_turn_are_left_alone() -> None:
    layer = random_language_model(8, 8, heads=1, seed=0).canonical().layers[0]
    assert isinstance(layer.network, GatedNetwork)
    state = AttentionState(layer.attention, float(np.log(3.0)))
    fit = _fit_of(state, AfterAttention(layer.network, 1e-6, 1e-6), np.random.default_rng(0))
    assert settle_slow_planes(fit, state, _OPTIONS) is state
