"""`recover` on layers of torch as they run: float32, scalar and vector answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import unsoftmax
from tests.learners.computed.float_layers import FloatLayer, random_layer
from tests.learners.computed.onnx_layer import save_float32_layer
from unsoftmax.arrays import Array
from unsoftmax.learners import Size
from unsoftmax.oracles.torch_module import TorchOracle


@pytest.mark.parametrize(("d", "heads"), [(16, 2), (8, 2), (8, 1)])
@pytest.mark.parametrize("vector", [False, True])
def test_a_default_layer_of_torch(d: int, heads: int, vector: bool) -> None:
    for seed in range(2 if d == 8 else 1):
        layer = random_layer(d, heads, seed)
        readout = None if vector else np.random.default_rng(seed).standard_normal(d)
        result = unsoftmax.recover(TorchOracle(layer, readout=readout), seed=seed)
        truth = FloatLayer(layer, torch.float32, readout).truth()
        exact = (
            truth
            if heads > 1
            else unsoftmax.SingleHead(truth.heads[0].matrix, truth.heads[0].v, truth.heads[0].w0, c=truth.c)
        )
        assert result.status is unsoftmax.Status.WITHIN_BOUND
        assert result.error_bound is not None
        assert result.unwrap().distance(exact) <= result.error_bound < 2e-5
        assert "99 %" in result.reason
        assert any("float32" in finding.value for finding in result.findings)
        learning = result.queries.total - sum(
            result.queries.by_phase.get(name, 0) for name in ("identify", "verification")
        )
        size = Size.of(truth)
        assert result.claim.queries.holds(learning, size)
        planned = unsoftmax.plan(TorchOracle(layer, readout=readout), size=size)
        assert abs(planned.usual - result.queries.total) <= 0.2 * result.queries.total


@pytest.mark.parametrize("outputs", [1, 3])
def test_fewer_outputs_than_show_every_head(outputs: int) -> None:
    """A layer behind a classifier with few logits."""
    readout = np.random.default_rng(4).standard_normal((12, outputs)) / 3.0
    target = FloatLayer(random_layer(12, 3, 4), torch.float32, readout).stored()
    result = unsoftmax.recover(lambda X: target.answer(X, torch.float32), width=12, outputs=outputs)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.error_bound is not None
    assert result.unwrap().distance(target.truth()) <= result.error_bound < 2e-5
    assert target.deviation_over_own(result.unwrap()) <= 1.5


@pytest.mark.parametrize("d", [1, 4])
def test_vectors_of_one_number(d: int) -> None:
    """One output tells no row's weight apart from another's, of one head as of several."""
    layer = random_layer(d, 1, 1)
    readout = np.random.default_rng(1).standard_normal((d, 1)).astype(np.float32)
    inner = FloatLayer(layer, torch.float32, None)

    def target(X: Array) -> Array:
        return np.asarray(inner.ask(X).astype(np.float32) @ readout, dtype=np.float64)

    result = unsoftmax.recover(target, width=d, outputs=1, seed=1)
    assert result.status is unsoftmax.Status.WITHIN_BOUND, result.reason
    fresh = np.random.default_rng(2).standard_normal((20, 5, d))
    assert np.abs(result.unwrap()(fresh) - target(fresh)).max() < 1e-5


def test_every_step_in_float32_and_the_readout_too() -> None:
    target = FloatLayer.scalar(random_layer(8, 2, 5), 5)
    result = unsoftmax.recover(lambda X: target.answer(X, torch.float32), width=8)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(target.truth()) <= (result.error_bound or 0.0)


def test_bfloat16() -> None:
    target = FloatLayer.scalar(random_layer(8, 2, 3), 3, torch.bfloat16)
    result = unsoftmax.recover(lambda X: target.answer(X, torch.bfloat16), width=8)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(target.truth()) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vector", [False, True])
def test_coarse_formats(dtype: torch.dtype, vector: bool) -> None:
    layer = random_layer(12, 2, 3)
    readout = None if vector else np.random.default_rng(3).standard_normal(12)
    target = FloatLayer(layer, dtype, readout).stored()
    result = unsoftmax.recover(TorchOracle(target.layer, readout=target.readout))
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(target.truth()) <= (result.error_bound or 0.0)
    model = result.unwrap()
    assert isinstance(model, unsoftmax.MultiHead)
    assert target.deviation_over_own(model) < 1.0


@pytest.mark.parametrize("vector", [False, True])
def test_autocast(vector: bool) -> None:
    """Products in bfloat16, weights in float32; the readout is bfloat16 as well."""
    layer = random_layer(8, 2, 0)
    readout = torch.from_numpy(np.random.default_rng(0).standard_normal(8) / 4.0).to(torch.bfloat16)

    def target(X: Array) -> Array:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            rows = torch.from_numpy(X).float()
            last = layer(rows, rows, rows, need_weights=False)[0][:, -1]
        return np.asarray((last if vector else last @ readout).double().numpy())

    result = unsoftmax.recover(target, width=8, outputs=8 if vector else None)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert any("computed in bfloat16" in finding.value for finding in result.findings)
    truth = FloatLayer(layer, torch.float32, None if vector else readout.double().numpy()).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0) < 0.05


def test_a_slight_bend_behind_a_float32_head_is_never_called_rounding() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 8)).astype(np.float32) / 3
    b, u = rng.standard_normal(12).astype(np.float32) / 3, rng.standard_normal(12).astype(np.float32)
    W = rng.standard_normal((8, 8)).astype(np.float32) / 8

    def target(X: Array) -> Array:
        rows = X.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", rows, rows[:, -1] @ W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed = np.einsum("bn,bnd->bd", weights / weights.sum(axis=1, keepdims=True), rows)
        z = mixed @ A.T + b
        return np.asarray((z + np.float32(0.01) * np.tanh(z)) @ u, dtype=np.float64)

    assert not unsoftmax.recover(target, width=8).status.recovered


def test_readouts_a_hundredth_apart() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((2, 8, 8)).astype(np.float32) / 8
    v = rng.standard_normal((2, 8)).astype(np.float32)
    v[1] = v[0] + np.float32(0.01) * v[1]

    def target(X: Array) -> Array:
        rows = X.astype(np.float32)
        answers = np.zeros(len(X), dtype=np.float32)
        for matrix, readout in zip(W, v, strict=True):
            scores = np.einsum("bnd,bd->bn", rows, rows[:, -1] @ matrix.T)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            answers += np.einsum("bn,bn->b", weights / weights.sum(axis=1, keepdims=True), rows @ readout)
        return answers.astype(np.float64)

    result = unsoftmax.recover(target, width=8)
    heads = [unsoftmax.SingleHead(np.float64(a), np.float64(b)) for a, b in zip(W, v, strict=True)]
    if result.status is unsoftmax.Status.UNRESOLVED:
        assert "readout" in result.reason or "rounding" in result.reason
        return
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(unsoftmax.MultiHead(heads)) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(("gain", "readout"), [(100.0, 1.0), (1.0, 1e4), (1e4, 1.0)])
def test_strong_scores_and_large_readouts_in_float16_are_an_outcome(gain: float, readout: float) -> None:
    layer = random_layer(8, 2, 0, gain=gain).to(torch.float16)
    result = unsoftmax.recover(TorchOracle(layer, readout=readout * np.ones(8)))
    if result.status is unsoftmax.Status.UNRESOLVED:
        assert "11-bit" in result.reason or "overflow" in result.reason
        return
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    truth = FloatLayer(layer, torch.float16, readout * np.ones(8)).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(("d", "gain"), [(8, 30.0), (6, 1000.0)])
def test_vectors_that_overflow_in_float16_are_an_outcome(d: int, gain: float) -> None:
    layer = random_layer(d, 2, 0, gain=gain).to(torch.float16)
    result = unsoftmax.recover(TorchOracle(layer))
    if result.status is unsoftmax.Status.UNRESOLVED:
        assert "overflow" in result.reason
        assert "float16" in result.reason
        return
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    found, truth = result.unwrap(), unsoftmax.from_torch(layer.double())
    assert isinstance(found, unsoftmax.MultiHead)
    assert isinstance(truth, unsoftmax.MultiHead)
    assert truth.distance(found) <= (result.error_bound or 0.0)


def _second_head_like_the_first(layer: torch.nn.MultiheadAttention, sign: float, apart: float) -> None:
    """Its values are sign times those of the first head, up to a relative distance."""
    d, r = int(layer.embed_dim), int(layer.head_dim)
    with torch.no_grad():
        for part in (layer.in_proj_weight, layer.in_proj_bias):
            part[2 * d + r : 2 * d + 2 * r] = (
                part[2 * d : 2 * d + r] + apart * part[2 * d + r : 2 * d + 2 * r]
            )
        out = layer.out_proj.weight
        out[:, r : 2 * r] = sign * (out[:, :r] + apart * out[:, r : 2 * r])


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("sign", "apart"), [(1.0, 0.0), (-1.0, 0.0), (1.0, 1e-2), (-1.0, 1e-2)])
def test_equal_or_opposite_values_end_unresolved_or_recovered(
    vector: bool, sign: float, apart: float
) -> None:
    """Never an exception, never another family; the reason names what stands in the way."""
    layer = random_layer(8, 2, 0)
    _second_head_like_the_first(layer, sign, apart)
    readout = None if vector else np.random.default_rng(0).standard_normal(8)
    result = unsoftmax.recover(TorchOracle(layer, readout=readout))
    if result.status is unsoftmax.Status.WITHIN_BOUND:
        truth = FloatLayer(layer, torch.float32, readout).truth()
        assert result.unwrap().distance(truth) <= (result.error_bound or 0.0)
        return
    assert result.status is unsoftmax.Status.UNRESOLVED
    assert apart or "equal or opposite" in result.reason or "sum of the other" in result.reason


def test_readouts_a_hundredth_from_opposite_in_a_wider_layer() -> None:
    """Single rows are far off lines there, because what they show cancels."""
    layer, readout = random_layer(16, 2, 43), np.random.default_rng(43).standard_normal(16)
    _second_head_like_the_first(layer, -1.0, 1e-2)
    result = unsoftmax.recover(TorchOracle(layer, readout=readout))
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    truth = FloatLayer(layer, torch.float32, readout).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_readouts_that_nearly_cancel_behind_limits_are_told_as_heads(limit: float) -> None:
    """Single rows are off lines by rounding, and by the limits: neither is a network on top."""
    layer, readout = random_layer(16, 2, 43), np.random.default_rng(43).standard_normal(16)
    _second_head_like_the_first(layer, -1.0, 1e-2)
    result = unsoftmax.recover(unsoftmax.Clipped(TorchOracle(layer, readout=readout), limit))
    assert result.status is unsoftmax.Status.UNRESOLVED
    assert "looks like several heads (answers: clipped computed in float32" in result.reason


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_of_heads_that_nearly_cancel_are_not_held_against_every_family(seed: int) -> None:
    """Behind a limit, their rounding makes the weights of opposite rows add up to one only roughly."""
    rng = np.random.default_rng(seed)
    W, v = (rng.standard_normal((2, 8, 8)) / np.sqrt(8.0)).astype(np.float32), rng.standard_normal((2, 8))
    v[1] = -v[0] + 1e-3 * rng.standard_normal(8)
    readouts = v.astype(np.float32)

    def answer(X: Array) -> Array:
        rows, total = X.astype(np.float32), np.float32(0.0)
        for form, readout in zip(W, readouts, strict=True):
            scores = np.einsum("bnd,de,be->bn", rows, form, rows[:, -1])
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            total = total + np.einsum("bn,bn->b", shares, rows @ readout)
        return np.clip(np.asarray(total, dtype=np.float64), -1.0, 1.0)

    result = unsoftmax.recover(answer, width=8)
    assert result.status is unsoftmax.Status.UNRESOLVED
    assert "several heads" in result.reason


def test_values_that_cancel_are_not_taken_for_a_block() -> None:
    layer = random_layer(16, 2, 6)
    _second_head_like_the_first(layer, -1.0, 0.0)
    result = unsoftmax.recover(TorchOracle(layer))
    assert result.status is unsoftmax.Status.UNRESOLVED
    assert "equal or opposite values" in result.reason


def test_another_function_in_float32_is_never_called_recovered() -> None:
    rng = np.random.default_rng(0)
    W, v = rng.standard_normal((8, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)

    def linear_attention(X: Array) -> Array:
        """No softmax: weights are the scores themselves."""
        rows = X.astype(np.float32)
        scores = np.einsum("bnd,de,be->bn", rows, W, rows[:, -1])
        mixed = np.einsum(
            "bn,bnd->bd", scores / (np.abs(scores).sum(axis=1, keepdims=True) + np.float32(1e-6)), rows
        )
        return np.asarray(mixed @ v, dtype=np.float64)

    assert not unsoftmax.recover(linear_attention, width=8).status.recovered


@pytest.mark.parametrize("vector", [False, True])
def test_the_same_layer_in_onnx_runtime(tmp_path: Path, vector: bool) -> None:
    """Another implementation of float32 arithmetic ends as the one in process does."""
    layer = random_layer(8, 2, 8)
    readout = None if vector else np.round(8.0 * np.random.default_rng(8).standard_normal(8)) / 8.0
    path = save_float32_layer(layer, tmp_path / "layer.onnx", readout)
    result = unsoftmax.recover(path)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    truth = FloatLayer(layer, torch.float32, readout).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0) < 1e-5
    assert any("computed in float32" in finding.value for finding in result.findings)


@pytest.mark.parametrize(("d", "heads", "rank", "seed"), [(16, 1, 16, 104), (7, 1, 7, 1), (16, 2, 3, 0)])
def test_vectors_of_odd_heads(d: int, heads: int, rank: int, seed: int) -> None:
    """Square factors, whose small singular values belong to the head; a layer so narrow that the search for
    plateaus takes the whole price; values of lower rank than scores."""
    layer = random_layer(d, heads, seed)
    with torch.no_grad():
        for h in range(heads):
            first = 2 * d + h * int(layer.head_dim)
            layer.in_proj_weight[first + rank : first + int(layer.head_dim)] = 0.0
    target = FloatLayer(layer, torch.float32, None)
    result = unsoftmax.recover(TorchOracle(layer))
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert target.deviation_over_own(result.unwrap()) < 3.0
    assert (result.error_bound or 1.0) < 2e-5


@pytest.mark.parametrize("seed", [2, 7])
def test_vectors_of_many_heads_are_as_exact_as_the_layer(seed: int) -> None:
    """Each sequence shows five scores in ten numbers: fits to tables of scores alone are 2 to 5 times off."""
    target = FloatLayer(random_layer(10, 5, seed), torch.float32, None)
    result = unsoftmax.recover(TorchOracle(target.layer), seed=seed)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(target.truth()) <= (result.error_bound or 0.0)
    assert target.deviation_over_own(result.unwrap()) < 1.5


@pytest.mark.parametrize("longest", [3, 4])
def test_vectors_of_short_sequences(longest: int) -> None:
    target = FloatLayer(random_layer(12, 2, 3), torch.float32, None)
    result = unsoftmax.recover(TorchOracle(target.layer), longest=longest)
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    assert result.unwrap().distance(target.truth()) <= (result.error_bound or 0.0)
