"""Boxes of the other families for the honesty fuzzer: token ids, smooth networks, blocks, language models."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import torch

import unsoftmax
from tests.cases import tokens
from tests.cases.honesty_case import Case, Function, Maker
from unsoftmax import GatedNetwork, Model, MultiHead, Network, OracleSpec, SingleHead
from unsoftmax.arrays import Array
from unsoftmax.models.parts.activations import ACTIVATIONS

__all__ = ["KINDS", "SLOW"]

_NEAR = 1e-4  # of the answers: what boxes near the class add


def _token_head(heads: int, d: int, seed: int) -> Case:
    model = unsoftmax.random_token_heads(8 + 2 * d, 2, heads=heads, seed=seed)
    options: dict[str, object] = {"vocabulary": model.vocabulary}
    return Case(lambda ids: model(ids), None, model, model, options=options)


def _near_a_token_head(d: int, seed: int) -> Case:
    """The sum of the ids, bent, beside a head."""
    member = _token_head(1, d, seed)

    def box(ids: Array) -> Array:
        return np.asarray(member.function(ids) + 10.0 ** -(3 + seed % 5) * np.sin(ids.sum(axis=1)))

    return Case(box, None, box, options=member.options)


def _longer_ids(d: int, seed: int) -> Case:
    """Another head for ten and more tokens."""
    member, other = _token_head(1, d, seed), _token_head(1, d, seed + 1000)

    def box(ids: Array) -> Array:
        return (member if ids.shape[1] < 10 else other).function(ids)

    return Case(box, None, box, options=member.options)


def _token_outsider(name: str, d: int, seed: int) -> Case:
    box = tokens.OUTSIDE[name]
    return Case(box, None, box, options={"vocabulary": tokens.VOCABULARY})


def _one_row(function: Function, d: int, truth: Model | None) -> Case:
    oracle = unsoftmax.FunctionOracle(lambda X: function(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, function, truth, options={"family": "network"})


def _smooth(name: str, d: int, seed: int) -> Network:
    rng = np.random.default_rng([seed, d, 21])
    m = max(2, d)
    return Network(
        rng.standard_normal((m, d)) / np.sqrt(d),
        rng.standard_normal(m),
        0.5 * rng.standard_normal(m),
        float(rng.standard_normal()),
        activation=ACTIVATIONS[name],
    )


def _smooth_network(name: str, d: int, seed: int) -> Case:
    model = _smooth(name, max(d, 2), seed)
    return _one_row(model, model.width, model)


def _near_a_smooth_network(d: int, seed: int) -> Case:
    model = _smooth("tanh", max(d, 2), seed)
    return _one_row(lambda x: np.asarray(model(x) + _NEAR * np.sin(3.0 * x.sum(axis=1))), model.width, None)


def _block(norm_first: bool, seed: int) -> Function:
    generator = torch.Generator().manual_seed(seed)
    block = torch.nn.TransformerEncoderLayer(
        6, 1 + seed % 2, 4, dropout=0.0, batch_first=True, norm_first=norm_first
    ).double()
    with torch.no_grad():
        for name, part in block.named_parameters():
            drawn = torch.randn(part.shape, generator=generator, dtype=torch.float64)
            part.copy_(
                drawn / np.sqrt(part.shape[-1])
                + (1.0 if name.startswith("norm") and "weight" in name else 0.0)
            )
    block.eval()

    def answers(X: Array) -> Array:
        with torch.no_grad():
            return np.asarray(block(torch.as_tensor(X))[:, -1].numpy())

    return answers


def _block_case(norm_first: bool, d: int, seed: int) -> Case:
    function = _block(norm_first, seed)
    return Case(function, 6, function, exact=False, options={"outputs": 6}, member=True)


def _near_a_block(norm_first: bool, d: int, seed: int) -> Case:
    function = _block(norm_first, seed)

    def box(X: Array) -> Array:
        return np.asarray(function(X) + _NEAR * np.sin(X.sum(axis=(1, 2)))[:, None])

    return Case(box, 6, box, options={"outputs": 6})


def _blocks_by_length(d: int, seed: int) -> Case:
    """Another block for four and more rows."""
    first, second = _block(True, seed), _block(True, seed + 1000)

    def box(X: Array) -> Array:
        return (first if X.shape[1] < 4 else second)(X)

    return Case(box, 6, box, options={"outputs": 6})


def _beside_a_skip(vectors: bool, d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([seed, d, 22])
    outputs = int(rng.integers(1, d + 3)) if vectors else None
    shape = (d,) if outputs is None else (d, outputs)
    heads = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=outputs, biases=seed % 3 == 0)
    return MultiHead(heads.heads, heads.c, rng.standard_normal(shape))


def _skip_case(vectors: bool, d: int, seed: int) -> Case:
    model = _beside_a_skip(vectors, d, seed)
    options: dict[str, object] = {} if model.outputs is None else {"outputs": model.outputs}
    return Case(lambda X: model(X), d, model, model, options=options)


def _another_skip(d: int, seed: int) -> Case:
    """A skip connection that is another one beyond four rows."""
    model = _beside_a_skip(False, d, seed)
    assert model.skip is not None
    other = MultiHead(model.heads, model.c, (1.0 + 10.0 ** -(2 + seed % 6)) * model.skip)

    def box(X: Array) -> Array:
        return (model if X.shape[1] <= 4 else other)(X)

    return Case(box, d, box)


def _short_layer(skip: float, factor: float, d: int, seed: int) -> Case:
    """A torch layer that computes in float32; factor: of W for three and more rows."""
    d = 2 * max(2, d // 2)
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, 1 + seed % 2, batch_first=True)
    for part in (layer.in_proj_bias, layer.out_proj.bias):
        torch.nn.init.normal_(part, std=0.3)
    with torch.no_grad():
        layer.in_proj_weight.mul_(2.0)
    precise = unsoftmax.from_torch(copy.deepcopy(layer).double())
    truth = MultiHead(precise.heads, precise.c, skip * np.eye(d)) if skip else precise
    warmer = copy.deepcopy(layer)
    with torch.no_grad():
        warmer.in_proj_weight[:d].mul_(factor)
        warmer.in_proj_bias[:d].mul_(factor)
    heads = [
        SingleHead(factor * head.W, head.v, None if head.w0 is None else factor * head.w0)
        for head in precise.heads
    ]
    other = MultiHead(heads, truth.c, truth.skip)

    def box(X: Array) -> Array:
        x = torch.from_numpy(X).float()
        used = layer if X.shape[1] < 3 else warmer
        with torch.no_grad():
            return np.asarray((skip * x + used(x, x, x, need_weights=False)[0])[:, -1].numpy())

    def function(X: Array) -> Array:
        return (truth if X.shape[1] < 3 else other)(X)

    return Case(box, d, function, truth if factor == 1.0 else None, exact=False, options={"outputs": d})


def _short_network(d: int, seed: int) -> Case:
    """A ReLU network that computes in float32."""
    model = unsoftmax.random_relu_network(d, 2 + seed % 3, seed=seed, biases=True)
    A, b, u = (torch.from_numpy(part).float() for part in (model.A, model.b, model.u))

    def box(X: Array) -> Array:
        x = torch.from_numpy(X[:, 0]).float()
        return np.asarray((torch.relu(x @ A.T + b) @ u + float(model.c)).numpy())

    oracle = unsoftmax.FunctionOracle(box, OracleSpec(width=d, max_length=1))
    return Case(oracle, d, model, model, exact=False, options={"family": "relu-network"})


def _gated(d: int, seed: int) -> Case:
    d = max(d, 4)
    rng = np.random.default_rng([seed, d, 23])
    shapes = ((2, d), (2, d), (2, d), (2,), (2,), (d,))
    model = GatedNetwork(*(rng.standard_normal(shape) / np.sqrt(d) for shape in shapes))
    oracle = unsoftmax.FunctionOracle(lambda X: model(X[:, 0]), OracleSpec(width=d, max_length=1, outputs=d))
    return Case(oracle, d, model, model, options={"family": "network"})


def _language_model(d: int, seed: int) -> Case:
    """One layer of width 8, which is too small for the whole to be recovered; its parts are."""
    model = unsoftmax.random_language_model(8, 8, seed=seed)
    return Case(model, None, model, exact=False)


KINDS: dict[str, Maker] = {
    "tokens: one head": partial(_token_head, 1),
    "tokens: two heads": partial(_token_head, 2),
    "outside: tokens, near a head": _near_a_token_head,
    "outside: tokens, longer sequences": _longer_ids,
    **{
        f"outside: tokens, {name}": partial(_token_outsider, name)
        for name in ("bigrams", "maximum", "a head with one token unlike the others", "rotary positions")
    },
    **{f"network: {name}": partial(_smooth_network, name) for name in ("tanh", "silu", "gelu")},
    "outside: near a smooth network": _near_a_smooth_network,
    "block: pre-norm": partial(_block_case, True),
    "block: post-norm": partial(_block_case, False),
    "outside: near a pre-norm block": partial(_near_a_block, True),
    "outside: near a post-norm block": partial(_near_a_block, False),
    "outside: another block for four rows": _blocks_by_length,
    "language model: one layer": _language_model,
    "skip: numbers": partial(_skip_case, False),
    "skip: vectors": partial(_skip_case, True),
    "outside: another skip beyond four rows": _another_skip,
    "float32: a layer": partial(_short_layer, 0.0, 1.0),
    "float32: a layer and a skip": partial(_short_layer, 1.0, 1.0),
    "float32: a ReLU network": _short_network,
    "outside: float32, another W": partial(_short_layer, 0.0, 1.01),
    "outside: float32, another W and a skip": partial(_short_layer, 1.0, 1.001),
    "network: gated": _gated,
}
# a second and more each
SLOW = frozenset(kind for kind in KINDS if "block" in kind or "tokens" in kind or "smooth" in kind)
