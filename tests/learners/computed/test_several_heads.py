"""Scalar answers of layers that round at every step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.learners.computed.float_layers import FloatLayer, random_layer
from unsoftmax.arrays import Array
from unsoftmax.learners.computed.attempts import first_believed
from unsoftmax.learners.computed.several_heads import recover_heads
from unsoftmax.outcomes import Unresolved


@pytest.mark.parametrize(("d", "heads", "seed"), [(16, 2, 0), (16, 2, 1), (16, 4, 3), (12, 6, 1), (24, 3, 5)])
def test_a_float32_layer_is_recovered_up_to_its_own_rounding(d: int, heads: int, seed: int) -> None:
    target = FloatLayer.scalar(random_layer(d, heads, seed), seed)
    found = recover_heads(target, 24, np.random.default_rng(seed))
    truth = target.truth()
    assert len(found.model.heads) == heads
    assert target.deviation_over_own(found.model) < 1.5
    assert found.model.distance(truth) <= found.errors.overall < 2e-5
    assert target.asked - found.check.queries <= (5.0 if heads < 6 else 6.5) * truth.parameters


@pytest.mark.parametrize("seed", range(3))
def test_one_head_with_a_query_bias(seed: int) -> None:
    target = FloatLayer.scalar(random_layer(16, 1, seed + 70), seed)
    found = recover_heads(target, 24, np.random.default_rng(seed))
    truth = target.truth()
    assert found.model.distance(truth) <= found.errors.overall < 2e-6
    assert target.asked - found.check.queries <= 4 * truth.parameters


def test_a_layer_as_torch_makes_it_without_biases() -> None:
    torch.manual_seed(0)
    target = FloatLayer.scalar(torch.nn.MultiheadAttention(16, 2, batch_first=True).eval(), 0)
    found = recover_heads(target, 24, np.random.default_rng(0))
    assert found.model.distance(target.truth()) <= found.errors.overall < 2e-6
    assert target.deviation_over_own(found.model) < 1.5


@pytest.mark.parametrize("seed", range(2))
def test_bfloat16(seed: int) -> None:
    target = FloatLayer.scalar(random_layer(8, 2, seed), seed, torch.bfloat16)
    found = recover_heads(target, 8, np.random.default_rng(seed))
    assert target.deviation_over_own(found.model) < 1.0
    assert found.model.distance(target.truth()) <= found.errors.overall < 5e-2


@pytest.mark.parametrize("gain", [0.05, 20.0])
def test_weak_and_strong_scores(gain: float) -> None:
    target = FloatLayer.scalar(random_layer(16, 2, 0, gain=gain), 0)
    found = recover_heads(target, 24, np.random.default_rng(0))
    assert found.model.distance(target.truth()) <= found.errors.overall < 1e-4


def test_a_head_300_times_stronger_than_the_other() -> None:
    layer = random_layer(16, 2, 0)
    with torch.no_grad():
        layer.out_proj.weight[:, :8] *= 300
    target = FloatLayer.scalar(layer, 0)
    found = recover_heads(target, 24, np.random.default_rng(0))
    assert found.model.distance(target.truth()) <= found.errors.overall < 2e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equal_or_opposite_readouts_are_named_as_the_obstacle(sign: float) -> None:
    layer = random_layer(16, 2, 0)
    with torch.no_grad():
        layer.in_proj_weight[40:48] = sign * layer.in_proj_weight[32:40]
        layer.out_proj.weight[:, 8:16] = layer.out_proj.weight[:, :8]
    with pytest.raises(Unresolved, match="readout"):
        recover_heads(FloatLayer.scalar(layer, 0), 24, np.random.default_rng(0))


def test_rows_too_short_to_saturate_are_named_as_the_obstacle() -> None:
    target = FloatLayer.scalar(random_layer(16, 2, 0), 0)
    target.input_bound = 2.0
    with pytest.raises(Unresolved, match="longer rows"):
        recover_heads(target, 24, np.random.default_rng(0))


def test_another_function_is_not_passed_off_as_heads() -> None:
    """Scores through a square: no sum of softmax heads, whatever the fit says."""

    class Squared:
        width, input_bound, max_length = 6, None, None

        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self.W, self.v = rng.standard_normal((6, 6)), rng.standard_normal(6)

        def ask(self, batch: Array, /) -> Array:
            scores = np.einsum("bnd,de,be->bn", batch, self.W, batch[:, -1]) ** 2
            weights = np.exp(-np.minimum(scores, 50.0))
            weights /= weights.sum(axis=1, keepdims=True)
            values = np.einsum("bn,bnd,d->b", weights, batch, self.v)
            return np.asarray(np.float32(values), dtype=np.float64)

        def batch_size(self, length: int, /) -> int:
            return 1000

    with pytest.raises(Unresolved):
        recover_heads(Squared(), 24, np.random.default_rng(0))


def test_singular_equations_say_what_leads_to_them() -> None:
    with pytest.raises(Unresolved, match=r"equal up to rounding, or weights that are all 0 or 1\. Float64"):
        first_believed(lambda: np.linalg.inv(np.zeros((2, 2))), 24)
