"""Whole encoder blocks from their answers: orders, norms, activations, and what is no such block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.encoder_blocks import layer as encoder_layer

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Size
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.heads_by_copies import values_of_heads
from unsoftmax.learners.encoder_block.learner import EncoderBlockLearner
from unsoftmax.learners.encoder_block.responses import DirectionResponses
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.relu_ball.find import find_relu_network
from unsoftmax.learners.smooth_network.asks import CountedAsks, FunctionAsks
from unsoftmax.models import EncoderBlock, Network, block_from_torch
from unsoftmax.models.parts import GELU, RELU, SILU, Activation, LayerNorm, RMSNorm
from unsoftmax.outcomes import Status


def random_state(
    shape: BlockShape, heads: int, rank: int, neurons: int, seed: int, answers: int = 0
) -> BlockState:
    rng, d, k = np.random.default_rng(seed), shape.width, shape.basis.shape[1]
    p, m = (k, d) if shape.norm_first else (d, k)

    def draw(*sizes: int) -> Array:
        return np.asarray(rng.standard_normal(sizes) / np.sqrt(sizes[-1]))

    gains = (
        np.empty((3, 0))
        if shape.norm_first
        else np.array([[1.0], [1.0], [0.0]]) + 0.2 * rng.standard_normal((3, d))
    )
    heads_of = (
        draw(heads, rank, p + 1),
        draw(heads, rank, p),
        draw(heads, rank, p),
        draw(m, heads * rank + 1),
    )
    outer, readout = draw(answers or m, neurons + 1), draw(answers, d)
    return BlockState(*heads_of, draw(neurons, k + 1), outer, np.log([1e-3, 2e-3]), gains, readout)


_SHAPES = [
    *(BlockShape(first, centred, GELU, 6) for first in (True, False) for centred in (True, False)),
    BlockShape(True, False, GELU, 6, normed=False),
    BlockShape(True, False, GELU, 6, normed=False, skip=False),
    BlockShape(True, True, GELU, 6, pooled=True),
]


@pytest.mark.parametrize("activation", [GELU, RELU])
@pytest.mark.parametrize(
    ("shape", "answers"),
    [*((shape, 0) for shape in _SHAPES), (_SHAPES[0], 3), (_SHAPES[-2], 7), (_SHAPES[-1], 3)],
)
def test_the_fit_predicts_as_the_model_does_and_knows_its_derivatives(
    shape: BlockShape, answers: int, activation: Activation
) -> None:
    shape = replace(shape, activation=activation)
    state, rng = random_state(shape, 2, 3, 5, 0, answers), np.random.default_rng(1)
    groups = [rng.standard_normal((4, length, 6)) for length in (1, 3)]
    data = tuple(Sequences(rows, np.zeros((4, answers or 6)), np.full(4, 0.7)) for rows in groups)
    fit = BlockFit(shape, data)
    np.testing.assert_allclose(state.model(shape)(groups[1]), fit.predict(state, groups[1]), atol=1e-12)
    jacobian = fit.linearise(state)
    step = rng.standard_normal(state.unknowns)
    numeric = (fit.residual(state.moved(1e-6 * step)) - fit.residual(state.moved(-1e-6 * step))) / 2e-6
    forward = jacobian.forward(step)
    np.testing.assert_allclose(forward, numeric, atol=1e-7 * np.abs(numeric).max())
    other = rng.standard_normal(len(forward))
    assert other @ forward == pytest.approx(jacobian.backward(other) @ step, rel=1e-10)
    np.testing.assert_allclose(jacobian.normal() @ step, jacobian.backward(forward), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diag(jacobian.normal()), jacobian.diagonal(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_relu_network_inside_a_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, U = rng.uniform(-1, 1, (14, 9)) / 3.0, rng.uniform(-1, 1, (14, 10)) / 4.0
    hidden = Network(A, U, 0.2 * rng.standard_normal(14), rng.standard_normal(10), activation=RELU)

    def bounded(x: Array) -> Array:
        assert float(np.linalg.norm(x, axis=1).max()) < 3.0
        return hidden(x)

    found = find_relu_network(FunctionAsks(bounded, 9, 10, 3.0), 1e-14, rng).network
    assert hidden.within(3.0).distance(found) < 1e-5
    inside = rng.standard_normal((100, 9))
    inside *= 2.7 / np.linalg.norm(inside, axis=1, keepdims=True)
    assert np.abs(hidden(inside) - found(inside)).max() < 1e-6


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


def test_relu_neurons_far_from_the_middle_of_the_ball() -> None:
    rng = np.random.default_rng(5)
    A, U, b = rng.standard_normal((12, 10)), rng.standard_normal((12, 10)), 0.3 * rng.standard_normal(12)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b[:3] = -2.1  # of a radius of three: one point of the shell in two hundred lies beyond
    hidden = Network(A, U, b, rng.standard_normal(10), activation=RELU)
    found = find_relu_network(FunctionAsks(hidden, 10, 10, 3.0), 1e-14, rng).network
    assert hidden.within(3.0).distance(found) < 1e-5


@pytest.mark.parametrize("seed", [48, 128])
def test_misplaced_relu_neurons_take_no_further_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b, U, linear = (rng.standard_normal(size) for size in ((12, 6), 12, (12, 6), (6, 6)))
    asks = CountedAsks(FunctionAsks(lambda u: np.maximum(u @ A.T + 0.5 * b, 0.0) @ U + u @ linear, 6, 6, 2.5))
    found = find_relu_network(asks, 1e-11, rng)
    assert found.network.neurons == 12
    assert found.precise
    assert asks.count < 700  # most such networks take 300 to 500


def test_heads_of_very_different_sizes_behind_a_last_norm() -> None:
    rng = np.random.default_rng(0)
    outputs = np.array([1.0, 0.1, 0.01, 0.001])[:, None] * rng.standard_normal((4, 7))
    alone, added = rng.standard_normal((40, 7)), rng.uniform(size=(40, 4)) @ outputs
    found = (alone + added) * rng.uniform(0.5, 2.0, (40, 1))  # only directions are answered
    responses = DirectionResponses(lambda keys, asking: found, lambda asking: alone)
    settled = responses.settle(found, alone, 4)
    assert np.abs(settled - added).max() < 1e-8


def test_directions_along_which_heads_are_not_taken_apart_are_turned() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, 6, 5))
    asked = list[Array]()

    def split(a: Array) -> Array | None:
        asked.append(a)
        third = len(asked) > 3 and np.allclose(a, asked[3])  # the third direction, however often it is asked
        return None if third else np.asarray((values @ a)[rng.permutation(3)])

    found = values_of_heads(split, 5, 0.7, rng)
    order = [int(np.abs(found - each).max(axis=(1, 2)).argmin()) for each in values]
    assert np.abs(found[order] - values).max() < 1e-12


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
