"""Blocks without norms: attention, a skip connection or none, and a network behind both; and what only looks
like one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.models import EncoderBlock, MultiHead, Network, SingleHead
from unsoftmax.models.parts import GELU, RELU, Activation, LayerNorm, RMSNorm
from unsoftmax.outcomes import Status


def bare_block(
    width: int, heads: int, neurons: int, activation: Activation, seed: int, *, skip: bool = True
) -> EncoderBlock:
    """x + attention, then + network; without skip: the network of attention. Weights as nn.Linear draws them,
    biases drawn."""
    rng, r = np.random.default_rng(seed), width // heads

    def draw(*sizes: int) -> Array:
        return np.asarray(rng.uniform(-1.0, 1.0, sizes) * np.sqrt(3.0 / sizes[0]))

    attention = [
        SingleHead.from_projections(
            draw(width, r), draw(width, r), draw(width, r), draw(width, width)[:r], b_Q=draw(r), b_V=draw(r)
        )
        for _ in range(heads)
    ]
    weights = 0.6 * draw(width, neurons).T, 0.6 * draw(neurons, width)
    network = Network(*weights, 0.3 * draw(neurons), draw(width), activation=activation)
    return EncoderBlock(
        MultiHead(attention, draw(width)),
        network,
        skip=skip,
        readout=None if skip else np.zeros((width, width)),
    )


@pytest.mark.parametrize("activation", [RELU, GELU])
@pytest.mark.parametrize(("width", "heads", "neurons"), [(8, 2, 12), (6, 3, 14)])
def test_residual_blocks_without_norms(width: int, heads: int, neurons: int, activation: Activation) -> None:
    hidden = bare_block(width, heads, neurons, activation, 11)
    result = unsoftmax.recover(lambda X: hidden(X), width=width, outputs=width)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound < 1e-10
    X = np.random.default_rng(0).standard_normal((30, 5, width))
    np.testing.assert_allclose(result.model(X), hidden(X), atol=1e-11)


@pytest.mark.parametrize("activation", [RELU, GELU])
def test_the_network_of_attention_without_residuals(activation: Activation) -> None:
    hidden = bare_block(8, 2, 28 if activation is RELU else 12, activation, 3, skip=False)
    result = unsoftmax.recover(lambda X: hidden(X), width=8, outputs=8)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert hidden.distance(result.model) < 1e-10


@pytest.mark.parametrize("skip", [True, False])
def test_parameters_that_give_one_function(skip: bool) -> None:
    """The heads' constant moves into the network; without a skip one matrix between them is free."""
    block = bare_block(6, 2, 9, GELU, 5, skip=skip)
    rng = np.random.default_rng(0)
    shift, mixing = rng.standard_normal(6), np.eye(6)
    if not skip:
        mixing = np.linalg.qr(rng.standard_normal((6, 6)))[0] + 0.3 * rng.standard_normal((6, 6))
    heads = [SingleHead(head.matrix, head.v @ mixing, head.w0) for head in block.attention.heads]
    back = np.asarray(np.linalg.inv(mixing).T, dtype=np.float64)
    network = block.network.after(back, -back @ shift).shifted(-shift if skip else 0.0)
    constant = np.asarray(block.attention.c) @ mixing + shift
    other = EncoderBlock(MultiHead(heads, constant), network, skip=skip, readout=block.readout)
    X = rng.standard_normal((5, 4, 6))
    np.testing.assert_allclose(other(X), block(X), atol=1e-12)
    assert block.distance(other) < 1e-11
    np.testing.assert_allclose(block.canonical()(X), block(X), atol=1e-12)


def test_files_and_onnx_keep_skip_and_readout(tmp_path: object) -> None:
    block = bare_block(6, 2, 9, RELU, 5, skip=False)
    path = f"{tmp_path}/block.safetensors"
    block.save(path)
    X = np.random.default_rng(0).standard_normal((5, 4, 6))
    np.testing.assert_array_equal(unsoftmax.load(path)(X), block(X))
    block.save_onnx(f"{tmp_path}/block.onnx")
    answers = unsoftmax.as_oracle(f"{tmp_path}/block.onnx")(X)
    np.testing.assert_allclose(answers, block(X), atol=1e-12)
    with pytest.raises(unsoftmax.UsageError, match="residual"):
        unsoftmax.to_torch(block)


def _faint_sine(block: EncoderBlock, X: Array) -> Array:
    return block(X) + 1e-6 * np.sin(X[:, -1])


def _other_scores_far_away(block: EncoderBlock, X: Array) -> Array:
    y = block.after_attention(X * (1.0 + 1e-5 * (X.shape[1] > 3)))
    return block.after_network(y)


def _network_twice(block: EncoderBlock, X: Array) -> Array:
    return block.after_network(block.after_network(block.after_attention(X)))


def _other_activation_in_one_neuron(block: EncoderBlock, X: Array) -> Array:
    assert isinstance(block.network, Network)
    z = block.network.hidden(block.after_attention(X))[:, :1]
    return np.asarray(block(X) + (np.tanh(z) - np.maximum(z, 0.0)) * block.network.U[0])


def _far_kink(block: EncoderBlock, X: Array) -> Array:
    """A neuron that bends only at rows of norm 1e5."""
    y = block.after_attention(X)
    return block.after_network(y) + np.maximum(y[:, :1] - 1e5, 0.0)


@pytest.mark.parametrize(
    "hostile",
    [_faint_sine, _other_scores_far_away, _network_twice, _other_activation_in_one_neuron, _far_kink],
)
@pytest.mark.parametrize("activation", [RELU, GELU])
def test_what_only_looks_like_a_block_is_never_recovered(
    hostile: Callable[[EncoderBlock, Array], Array], activation: Activation
) -> None:
    block = bare_block(6, 2, 8, activation, 7)
    result = unsoftmax.recover(lambda X: hostile(block, X), width=6, outputs=6)
    assert result.status in (Status.UNRESOLVED, Status.OUTSIDE_CLASS), result
    assert result.model is None


def _normed_attention(norm: LayerNorm | RMSNorm, seed: int) -> EncoderBlock:
    """x + attention(norm(x)), and no network."""
    block = bare_block(8, 2, 4, RELU, seed)
    return EncoderBlock(block.attention, Network(np.empty((0, 8)), np.empty((0, 8))), norm)


@pytest.mark.parametrize(("kind", "eps"), [(LayerNorm, 1e-5), (RMSNorm, 3e-4)])
def test_attention_behind_a_norm_without_a_network(kind: type[LayerNorm] | type[RMSNorm], eps: float) -> None:
    rng = np.random.default_rng(4)
    bias = rng.standard_normal(8) if kind is LayerNorm else None
    hidden = _normed_attention(kind(rng.uniform(0.5, 1.5, 8), bias, eps), 4)
    result = unsoftmax.recover(lambda X: hidden(X), width=8, outputs=8)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound < 1e-9


def test_a_norm_behind_attention_without_a_network_leaves_the_value_path() -> None:
    block, norm = bare_block(8, 2, 4, RELU, 2), LayerNorm(np.linspace(0.5, 1.5, 8), np.ones(8))
    result = unsoftmax.recover(lambda X: norm(block.after_attention(X)), width=8, outputs=8)
    assert result.status is Status.UNRESOLVED
    assert "a norm follows the attention" in result.reason
    part, path = result.parts["value-path"], np.asarray(block.attention.v)
    path = path - path.mean(axis=1, keepdims=True)
    assert np.linalg.norm(part.value - path) < part.error_bound * np.linalg.norm(path)


def test_attention_behind_a_norm_with_something_else_is_never_recovered() -> None:
    block = _normed_attention(LayerNorm(np.ones(8)), 4)

    def bent(X: Array) -> Array:
        return np.asarray(block(X) + 1e-7 * np.tanh(X[:, -1]) ** 2)

    def half(X: Array) -> Array:
        norm = LayerNorm(np.ones(4))
        return np.asarray(X[:, -1] + block.attention(np.concatenate([norm(X[..., :4]), X[..., 4:]], axis=-1)))

    for target in (bent, half):
        assert not unsoftmax.recover(target, width=8, outputs=8).status.recovered
