"""Whole encoder blocks from their answers: orders, norms, activations, and what is no such block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from benchmarks.encoder_blocks import layer as encoder_layer

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Size
from unsoftmax.learners.encoder_block.learner import EncoderBlockLearner
from unsoftmax.models import EncoderBlock, Network, block_from_torch
from unsoftmax.models.parts import SILU, LayerNorm, RMSNorm
from unsoftmax.outcomes import Status


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_pre_norm_layers_of_torch(activation: str) -> None:
    layer = torch_layer(3, norm_first=True, activation=activation)
    result = unsoftmax.recover(layer, seed=1)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    truth = block_from_torch(layer)
    assert truth.distance(result.model) < 1e-9
    assert result.error_bound is not None
    assert truth.distance(result.model) <= result.error_bound
    X = np.random.default_rng(0).standard_normal((40, 5, 8))
    answers = layer(torch.tensor(X))[:, -1].detach().numpy()
    assert np.abs(result.model(X) - answers).max() < 1e-10
    learner = EncoderBlockLearner()
    assert learner.claim.queries.holds(result.queries.learning, Size(8, (4, 4), neurons=10))


def test_pre_norm_with_rms_norm_silu_and_another_eps() -> None:
    block = block_from_torch(torch_layer(4, norm_first=True))
    network = block.network
    assert isinstance(network, Network)
    smooth = Network(network.A, network.U, network.b, network.c, activation=SILU)
    gains = np.random.default_rng(0).uniform(0.7, 1.4, (2, 8))
    target = EncoderBlock(
        block.attention, smooth, RMSNorm(gains[0], None, 1e-6), RMSNorm(gains[1], None, 1e-6)
    )
    result = unsoftmax.recover(target, family="encoder-block", seed=2)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert target.distance(result.model) < 1e-8


def _part_of_the_row(block: EncoderBlock) -> Callable[[Array], Array]:
    norm = LayerNorm(np.ones(4))

    def answer(X: Array) -> Array:
        y = X[:, -1] + block.attention(np.concatenate([norm(X[..., :4]), X[..., 4:]], axis=-1))
        return np.asarray(block.after_network(y))

    return answer


def _stranger(block: EncoderBlock) -> Callable[[Array], Array]:
    assert isinstance(block.network, Network)
    first = block.network.A[0]

    def answer(X: Array) -> Array:
        y = block.after_attention(X)
        assert block.second is not None
        return np.asarray(block.after_network(y) + 0.3 * np.sin(2.0 * block.second(y) @ first)[:, None])

    return answer


def _network_twice(block: EncoderBlock) -> Callable[[Array], Array]:
    return lambda X: block.after_network(block.after_network(block.after_attention(X)))


def _shaking(block: EncoderBlock) -> Callable[[Array], Array]:
    rng = np.random.default_rng(0)
    return lambda X: block(X) * (1.0 + 1e-3 * rng.standard_normal((len(X), 1)))


@pytest.mark.parametrize("hostile", [_part_of_the_row, _stranger, _network_twice, _shaking])
@pytest.mark.parametrize("norm_first", [True, False])
def test_hostile_blocks_are_never_a_success(
    hostile: Callable[[EncoderBlock], Callable[[Array], Array]], norm_first: bool
) -> None:
    function = hostile(block_from_torch(torch_layer(5, norm_first=norm_first)))
    result = unsoftmax.recover(function, width=8, outputs=8, seed=3, learner=EncoderBlockLearner(attempts=1))
    assert not result.status.recovered
    assert result.model is None


@pytest.mark.parametrize(
    ("bend", "seed"),
    [
        (lambda z: torch.nn.functional.softplus(z, beta=200.0), 1),
        (lambda z: torch.nn.functional.softplus(z, beta=20.0), 2),
        (torch.nn.functional.hardswish, 2),
    ],
)
def test_a_neuron_that_is_nearly_relu_ends_the_search(
    bend: Callable[[torch.Tensor], torch.Tensor], seed: int
) -> None:
    """One of twelve neurons bends where the others have a kink, which chords could halve without end."""
    layer = encoder_layer(8, 2, 12, "relu", seed, norm_first=False)

    @torch.no_grad()
    def answer(X: Array) -> Array:
        x = torch.tensor(X)
        y = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
        hidden = layer.linear1(y)
        active = torch.cat([bend(hidden[..., :1]), torch.relu(hidden[..., 1:])], dim=-1)
        return np.asarray(layer.norm2(y + layer.linear2(active))[:, -1].numpy())

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block", seed=seed)
    assert result.status is Status.UNRESOLVED
    assert result.model is None
    assert result.queries.total < 60_000


def test_a_residual_stream_that_folds() -> None:
    """A has negative eigenvalues here, so that one path does not lead to every input of the network."""
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    ).eval()
    result = unsoftmax.recover(layer, family="encoder-block", seed=3)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert block_from_torch(layer).distance(result.model) < 1e-9


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_post_norm_layers_of_torch(activation: str) -> None:
    layer = torch_layer(6, norm_first=False, activation=activation)
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    truth = block_from_torch(layer)
    assert truth.distance(result.model) < 1e-8
    assert result.error_bound is not None
    assert truth.distance(result.model) <= result.error_bound
    X = np.random.default_rng(0).standard_normal((40, 5, 8))
    answers = layer(torch.tensor(X))[:, -1].detach().numpy()
    assert np.abs(result.model(X) - answers).max() < 1e-10


@pytest.mark.parametrize(("activation", "always_on"), [("relu", False), ("gelu", True)])
def test_a_single_head_before_a_last_norm(activation: str, always_on: bool) -> None:
    """Its scores have full rank, while the norm hides one dimension of its outputs."""
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(
        7, 1, 8, 0.0, activation, batch_first=True, dtype=torch.float64
    ).eval()
    if always_on:
        with torch.no_grad():
            layer.linear1.bias[:2] = torch.tensor([11.0, -11.0])
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    X = np.random.default_rng(0).standard_normal((40, 5, 7))
    assert np.abs(result.model(X) - _rows_of(layer)(X)[:, -1]).max() < 1e-10
    assert result.error_bound is not None
    assert block_from_torch(layer).distance(result.model) <= result.error_bound < 1e-7


def _rows_of(layer: torch.nn.TransformerEncoderLayer) -> Callable[[Array], Array]:
    return lambda X: layer(torch.tensor(X)).detach().numpy()


@pytest.mark.parametrize(
    ("answer", "outputs", "reason"),
    [
        (lambda rows, X: rows(X).mean(axis=1), 8, "the mean over rows, and a LayerNorm"),
        (
            lambda rows, X: rows(X * (1.0 + 0.1 * np.arange(X.shape[1])[:, None]))[:, -1],
            8,
            "order of the rows",
        ),
        (lambda rows, X: rows(X)[:, -1, :3], 3, "a LayerNorm follows the attention"),
    ],
)
def test_what_stands_in_the_way_is_named(
    answer: Callable[[Callable[[Array], Array], Array], Array], outputs: int, reason: str
) -> None:
    rows = _rows_of(torch_layer(7, norm_first=False))
    result = unsoftmax.recover(lambda X: answer(rows, X), width=8, outputs=outputs, family="encoder-block")
    assert not result.status.recovered
    assert reason in result.reason
    assert result.queries.total < 1500


def test_a_causal_mask_does_not_matter_to_the_last_row() -> None:
    layer = torch_layer(8, norm_first=False)

    def answer(X: Array) -> Array:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(X.shape[1], dtype=torch.float64)
        return np.asarray(layer(torch.tensor(X), src_mask=mask).detach().numpy()[:, -1])

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block", seed=1)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert block_from_torch(layer).distance(result.model) < 1e-8


@pytest.mark.parametrize("norm_first", [False, True])
def test_shorter_arithmetic_than_float32_is_named_at_once(norm_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 12, batch_first=True, norm_first=norm_first, dtype=torch.bfloat16
    )
    result = unsoftmax.recover(layer)
    assert result.status is Status.UNRESOLVED
    assert "bfloat16" in result.reason
    assert "module.double()" in result.reason
    assert result.queries.total < 400


def _negative_last_gains(layer: torch.nn.TransformerEncoderLayer) -> None:
    layer.norm2.weight[::3] *= -1.0


def _negative_first_gains(layer: torch.nn.TransformerEncoderLayer) -> None:
    layer.norm1.weight[::3] *= -1.0


def _always_on(layer: torch.nn.TransformerEncoderLayer) -> None:
    layer.linear1.bias[:2] = 8.0


def _always_on_about_a_zero(layer: torch.nn.TransformerEncoderLayer) -> None:
    """The constant that such neurons add is taken off, so that the residual stream vanishes somewhere."""
    _always_on(layer)
    layer.linear2.bias.sub_(8.0 * layer.linear2.weight[:, :2].sum(dim=1))


def _no_biases(layer: torch.nn.TransformerEncoderLayer) -> None:
    """A row of zeros is answered where the second norm divides by the root of its eps."""
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            parameter.zero_()


def _tiny_eps(layer: torch.nn.TransformerEncoderLayer) -> None:
    layer.norm1.eps = layer.norm2.eps = 1e-12


@pytest.mark.parametrize(
    ("change", "norm_first"),
    [
        (_negative_last_gains, False),
        (_negative_first_gains, False),
        (_always_on, True),
        (_always_on_about_a_zero, False),
        (_no_biases, True),
        (_tiny_eps, True),
    ],
)
def test_members_that_torch_does_not_draw(
    change: Callable[[torch.nn.TransformerEncoderLayer], None], norm_first: bool
) -> None:
    layer = torch_layer(11, norm_first=norm_first, activation="relu")
    with torch.no_grad():
        change(layer)
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, EncoderBlock)
    distance = block_from_torch(layer).distance(result.model)
    assert distance < 1e-7
    assert result.error_bound is not None
    assert distance <= result.error_bound


@pytest.mark.parametrize(("activation", "norm_first"), [("gelu", True), ("relu", False), ("gelu", False)])
def test_an_eps_that_is_no_power_of_ten(activation: str, norm_first: bool) -> None:
    """The network is found on the sphere, where eps does not matter, and eps from single rows."""
    layer = torch_layer(12, norm_first=norm_first, activation=activation)
    layer.norm1.eps, layer.norm2.eps = 3e-6, 2e-5
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert result.error_bound is not None
    assert block_from_torch(layer).distance(result.model) <= result.error_bound < 1e-7


@pytest.mark.parametrize(("activation", "seed"), [("relu", 11), ("gelu", 13)])
def test_a_post_norm_block_with_the_eps_of_bert(activation: str, seed: int) -> None:
    """Lengths behind the last norm do not show, so that its network is found by directions alone."""
    layer = torch_layer(seed, norm_first=False, activation=activation)
    _tiny_eps(layer)
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, EncoderBlock)
    X = np.random.default_rng(0).standard_normal((40, 5, 8))
    answers = layer(torch.tensor(X))[:, -1].detach().numpy()
    assert np.abs(result.model(X) - answers).max() < 1e-10
    assert result.error_bound is not None
    assert block_from_torch(layer).distance(result.model) <= result.error_bound < 0.3
    assert "eps of norms are known to" in result.reason


@pytest.mark.parametrize("norm_first", [True, False])
def test_dropout_that_is_on_is_no_success(norm_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 10, 0.1, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).train()
    rows = _rows_of(layer)
    result = unsoftmax.recover(lambda X: rows(X)[:, -1], width=8, outputs=8, family="encoder-block")
    assert not result.status.recovered


@pytest.mark.parametrize("norm_first", [True, False])
def test_heads_that_are_tied_are_one_head(norm_first: bool) -> None:
    layer = torch_layer(12, norm_first=norm_first, activation="relu")
    with torch.no_grad():
        for part in (layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias):
            for start in (0, 8):  # queries and keys of the second head are those of the first
                part[start + 4 : start + 8] = part[start : start + 4]
    result = unsoftmax.recover(layer, family="encoder-block", seed=1)
    if not result.status.recovered:
        assert result.model is None
        return
    assert isinstance(result.model, EncoderBlock)
    X = np.random.default_rng(0).standard_normal((40, 5, 8))
    assert np.abs(result.model(X) - _rows_of(layer)(X)[:, -1]).max() < 1e-8
