"""Encoder blocks: held against torch and transformers, and every symmetry as two parameter sets of one
function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models import EncoderBlock, GatedNetwork, MultiHead, Network, SingleHead
from unsoftmax.models.conversions.encoder_blocks import block_from_state, block_from_torch, block_to_torch
from unsoftmax.models.conversions.exports import save_onnx
from unsoftmax.models.parts import ACTIVATIONS, GELU, RELU, SILU, Activation, LayerNorm, Norm, RMSNorm


def torch_layer(
    seed: int, *, norm_first: bool, activation: str = "gelu", d: int = 8
) -> torch.nn.TransformerEncoderLayer:
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(
        d, 2, 10, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "norm" in name and "weight" in name:
                parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
            elif "bias" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return layer


def sequences(d: int = 8) -> Array:
    return np.random.default_rng(5).standard_normal((6, 4, d))


def changed(block: EncoderBlock, **parts: object) -> EncoderBlock:
    kept = {
        "attention": block.attention,
        "network": block.network,
        "first": block.first,
        "second": block.second,
    }
    return EncoderBlock(**(kept | parts), norm_first=block.norm_first)  # type: ignore[arg-type]


def same_function(first: EncoderBlock, second: EncoderBlock) -> None:
    X = sequences(first.width)
    np.testing.assert_allclose(first(X), second(X), rtol=1e-9, atol=1e-11)
    assert first.distance(second) < 1e-10
    assert second.distance(first) < 1e-10


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_from_and_to_torch(norm_first: bool, activation: str) -> None:
    layer = torch_layer(1, norm_first=norm_first, activation=activation)
    block, X = block_from_torch(layer), sequences()
    answers = layer(torch.tensor(X))[:, -1].detach().numpy()
    np.testing.assert_allclose(block(X), answers, atol=1e-13)
    for form in (block, block.canonical()):
        np.testing.assert_allclose(form(X), answers, atol=1e-12)
        there = block_to_torch(form, 2)(torch.tensor(X))[:, -1].detach().numpy()
        np.testing.assert_allclose(there, answers, atol=1e-11)
    same_function(block, block.canonical())


def test_bert_and_vit_layers() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertLayer
    from transformers.models.vit.modeling_vit import ViTLayer

    X = sequences()
    for config, kind in ((transformers.BertConfig, BertLayer), (transformers.ViTConfig, ViTLayer)):
        settings = config(hidden_size=8, num_attention_heads=2, intermediate_size=10)
        settings._attn_implementation = "sdpa"  # eager attention computes its softmax in float32
        torch.manual_seed(0)
        layer = kind(settings).double().eval()
        answers = layer(torch.tensor(X))
        answers = (answers if isinstance(answers, torch.Tensor) else answers[0])[:, -1].detach().numpy()
        block = block_from_state(layer.state_dict(), 2, eps=settings.layer_norm_eps)
        np.testing.assert_allclose(block(X), answers, atol=1e-12)


def test_pre_norm_gain_and_bias_move_into_the_parts() -> None:
    block = block_from_torch(torch_layer(2, norm_first=True))
    assert block.first is not None
    gain = np.random.default_rng(0).uniform(0.5, 2.0, 8)
    first = LayerNorm(
        block.first.gain / gain,
        None if block.first.bias is None else block.first.bias / gain,
        block.first.eps,
    )
    heads = [
        SingleHead(gain[:, None] * h.W * gain, gain[:, None] * h.v, None if h.w0 is None else gain * h.w0)
        for h in block.attention.heads
    ]
    same_function(block, changed(block, first=first, attention=MultiHead(heads, block.attention.c)))
    assert isinstance(block.network, Network)
    assert block.second is not None
    assert block.second.bias is not None
    network = block.network.after(np.diag(gain), np.zeros(8))
    second = LayerNorm(block.second.gain / gain, block.second.bias / gain, block.second.eps)
    same_function(block, changed(block, network=network, second=second))


def test_pre_norm_mean_of_the_constant_is_shared() -> None:
    block = block_from_torch(torch_layer(3, norm_first=True))
    attention = MultiHead(
        [SingleHead(h.matrix, h.v, h.w0) for h in block.attention.heads], np.asarray(block.attention.c) + 0.7
    )
    same_function(block, changed(block, attention=attention, network=block.network.shifted(-0.7)))


def test_post_norm_mean_is_not_seen() -> None:
    block = block_from_torch(torch_layer(4, norm_first=False))
    rng = np.random.default_rng(0)
    heads = [SingleHead(h.matrix, h.v + rng.standard_normal((8, 1)), h.w0) for h in block.attention.heads]
    same_function(block, changed(block, attention=MultiHead(heads, np.asarray(block.attention.c) - 0.4)))
    same_function(block, changed(block, network=block.network.shifted(1.3)))


@pytest.mark.parametrize("factor", [2.5, -0.3])
def test_post_norm_factor(factor: float) -> None:
    block = block_from_torch(torch_layer(5, norm_first=False))
    first, second = block.first, block.second
    assert first is not None
    assert first.bias is not None
    assert second is not None
    d = np.eye(8)
    network = block.network.after(d / factor, np.zeros(8)).followed(factor * d)
    other = changed(
        block,
        network=network,
        first=LayerNorm(factor * first.gain, factor * first.bias, first.eps),
        second=LayerNorm(np.sign(factor) * second.gain, second.bias, factor**2 * second.eps),
    )
    same_function(block, other)


def test_post_norm_first_bias_moves_into_the_network() -> None:
    block = block_from_torch(torch_layer(6, norm_first=False))
    first = block.first
    assert first is not None
    assert first.bias is not None
    network = block.network.after(np.eye(8), first.bias).shifted(first.bias)
    same_function(block, changed(block, network=network, first=LayerNorm(first.gain, None, first.eps)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_order_of_heads_and_neurons_and_their_reflection(norm_first: bool) -> None:
    block = block_from_torch(torch_layer(7, norm_first=norm_first))
    heads = [SingleHead(h.matrix, h.v, h.w0) for h in block.attention.heads][::-1]
    network = block.network
    assert isinstance(network, Network)
    order = np.random.default_rng(0).permutation(10)
    shuffled = Network(network.A[order], network.U[order], network.b[order], network.c, activation=GELU)
    same_function(block, changed(block, attention=MultiHead(heads, block.attention.c), network=shuffled))
    turn = np.where(np.arange(10) < 4, -1.0, 1.0)  # gelu(z) = gelu(-z) + z
    linear = network.A[:4].T @ network.U[:4]
    c = np.asarray(network.c) + network.b[:4] @ network.U[:4]
    reflected = Network(network.A * turn[:, None], network.U, network.b * turn, c, linear, activation=GELU)
    same_function(block, changed(block, network=reflected))


@pytest.mark.parametrize("norm_first", [True, False])
def test_relu_scale_and_neurons_without_a_kink(norm_first: bool) -> None:
    block = block_from_torch(torch_layer(8, norm_first=norm_first, activation="relu"))
    network = block.network
    assert isinstance(network, Network)
    scale = np.random.default_rng(0).uniform(0.3, 3.0, 10)
    scaled = Network(
        network.A * scale[:, None], network.U / scale[:, None], network.b * scale, network.c, activation=RELU
    )
    same_function(block, changed(block, network=scaled))
    never = Network(np.vstack([network.A, 0.01 * np.ones((1, 8))]), np.vstack([network.U, np.ones((1, 8))]),
                    np.append(network.b, -5.0), network.c, activation=RELU)  # fmt: skip
    same_function(block, changed(block, network=never))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", [each for each in ACTIVATIONS.values() if each.smooth])
def test_smooth_neurons_that_do_not_bend_are_affine(activation: Activation, norm_first: bool) -> None:
    block = block_from_torch(torch_layer(9, norm_first=norm_first))
    network = block.network
    assert isinstance(network, Network)
    on, off = (activation(np.array([z])) for z in (60.0, -60.0))
    slope = activation.first(np.array([60.0]))
    passed = network.A[:1].T @ (slope[:, None] * network.U[:1])
    constant = network.c + on @ network.U[:1] + off @ network.U[1:2]
    rest = Network(network.A[2:], network.U[2:], network.b[2:], constant, passed, activation=activation)

    def with_biases(size: float) -> EncoderBlock:
        biases = np.append([size, -size], network.b[2:])
        whole = Network(network.A, network.U, biases, network.c, activation=activation)
        shift = constant - slope * (60.0 - size) * network.U[0]
        fewer = Network(rest.A, rest.U, rest.b, shift, passed, activation=activation)
        assert changed(block, network=whole).distance(changed(block, network=fewer)) < 1e-6
        return changed(block, network=whole)

    same_function(with_biases(60.0), changed(block, network=rest))
    hardly = with_biases(0.7 * activation.straight + 4.0)
    assert hardly.distance(hardly) == 0.0


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_a_changed_parameter_is_a_distance(norm_first: bool, kind: type[Norm]) -> None:
    block = block_from_torch(torch_layer(9, norm_first=norm_first))
    block = changed(block, first=kind(np.ones(8), None, 1e-5), second=kind(np.ones(8), None, 1e-5))
    network = block.network
    assert isinstance(network, Network)
    A = network.A.copy()
    A[3, 2] += 1e-3
    other = changed(block, network=Network(A, network.U, network.b, network.c, activation=GELU))
    assert 1e-5 < block.distance(other) < 1e-1
    heads = [SingleHead(1.001 * h.W, h.v, h.w0) for h in block.attention.heads]
    assert 1e-5 < block.distance(changed(block, attention=MultiHead(heads, block.attention.c))) < 1e-1
    assert block.distance(changed(block, second=kind(np.ones(8), None, 2e-5))) > 0.1
    assert (
        block.distance(
            EncoderBlock(block.attention, network, block.first, block.second, norm_first=not norm_first)
        )
        == 1.0
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_files(norm_first: bool, tmp_path: Path) -> None:
    block = block_from_torch(torch_layer(10, norm_first=norm_first))
    gated = GatedNetwork(np.ones((3, 8)), np.eye(8)[:3], np.ones((3, 8)), activation=SILU)
    for model in (block, changed(block, network=gated, first=RMSNorm(np.ones(8)), second=None)):
        there = unsoftmax.load(model.save(tmp_path / "block.safetensors"))
        assert isinstance(there, EncoderBlock)
        np.testing.assert_array_equal(there(sequences()), model(sequences()))
        assert there.norm_first == norm_first
    tensors = block.tensors() | {"first.layer.gain": np.ones(3)}
    with pytest.raises(ModelFileError, match="does not fit"):
        EncoderBlock.check_shapes({name: part.shape for name, part in tensors.items()})
    with pytest.raises(ModelFileError, match="no tensor"):
        EncoderBlock.from_tensors(block.tensors() | {"third": np.ones(1)})


def test_wrong_shapes_are_refused() -> None:
    block = block_from_torch(torch_layer(11, norm_first=True))
    with pytest.raises(UsageError, match="maps"):
        changed(block, network=Network(np.eye(4), np.eye(4)))
    with pytest.raises(UsageError, match="gains"):
        changed(block, first=LayerNorm(np.ones(4)))
    with pytest.raises(UsageError, match="answers with"):
        changed(block, attention=unsoftmax.random_multi_head(8, 2))
    with pytest.raises(UsageError, match="TransformerEncoderLayer"):
        block_from_torch(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda activation: activation.name)
def test_onnx_blocks_answer_as_the_model_does(
    activation: Activation, norm_first: bool, tmp_path: Path
) -> None:
    block = block_from_torch(torch_layer(2, norm_first=norm_first))
    network = block.network
    assert isinstance(network, Network)
    other = Network(6.0 * network.A, network.U, network.b, network.c, 0.3 * np.eye(8), activation=activation)
    block = EncoderBlock(block.attention, other, block.first, block.second, norm_first=norm_first)
    path = save_onnx(block, tmp_path / "block.onnx")
    X = np.random.default_rng(0).standard_normal((20, 5, 8))
    answers = onnxruntime.InferenceSession(str(path)).run(None, {"sequences": X})[0]
    np.testing.assert_allclose(answers, block(X), rtol=0, atol=1e-13)
