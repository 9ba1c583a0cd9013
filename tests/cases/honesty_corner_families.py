"""Boxes of the other families for the honesty fuzzer that leave the class in a corner: one output of a block,
one neuron, some token ids, some rows, saturated probabilities."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import torch

import unsoftmax
from tests.cases.honesty_case import Case, Maker
from tests.cases.honesty_corners import PICKS, size_of
from tests.cases.honesty_twists import generator
from unsoftmax import EncoderBlock, MultiHead, Network, OracleSpec, SingleHead, Transformer
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import block_from_torch
from unsoftmax.models.parts.activations import ACTIVATIONS

__all__ = ["KINDS", "SLOW"]


# Float32 arithmetic, another way for long sequences.


def _short_layer(d: int, seed: int) -> Case:
    d = 2 * max(2, d // 2)
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, 1 + seed % 2, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.mul_(2.0)
        for part in (layer.in_proj_bias, layer.out_proj.bias):
            part.normal_(0.0, 0.3)
    size = size_of(d, seed, 6.0)
    pick = list(PICKS.values())[seed % len(PICKS)]
    truth = unsoftmax.from_torch(copy.deepcopy(layer).double())

    def mixed(values: Array, X: Array) -> Array:
        factor = np.ones((len(X), d))
        factor[:, seed % d] += size * np.asarray(pick(X), dtype=float)
        return np.asarray(values * factor)

    def box(X: Array) -> Array:
        x = torch.from_numpy(X).float()
        with torch.no_grad():
            found = layer(x, x, x, need_weights=False)[0][:, -1].numpy().astype(np.float64)
        return mixed(found, X)

    return Case(box, d, lambda X: mixed(truth(X), X), exact=False, options={"outputs": d})


# Blocks, Transformers, networks and tokens.

_BLOCK = 6


def _block(seed: int, norm_first: bool, activation: str) -> EncoderBlock:
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(
        _BLOCK, 2, 5, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for name, part in layer.named_parameters():
            if "norm" in name and "weight" in name:
                part.copy_(1.0 + 0.2 * torch.randn_like(part))
            elif "bias" in name:
                part.copy_(0.2 * torch.randn_like(part))
    found = block_from_torch(layer)
    assert isinstance(found, EncoderBlock)
    return found


def _block_corner(d: int, seed: int) -> Case:
    """A block of which one output is another where a pick says so."""
    block = _block(seed, seed % 2 == 0, ("relu", "gelu")[seed % 3 % 2])
    size, pick = size_of(d, seed, 7.0), list(PICKS.values())[seed % len(PICKS)]

    def box(X: Array) -> Array:
        values = np.array(block(X))
        values[:, seed % _BLOCK] += size * np.asarray(pick(X), dtype=float)
        return values

    return Case(box, _BLOCK, box, exact=False, options={"outputs": _BLOCK})


def _transformer_corner(d: int, seed: int) -> Case:
    usual = unsoftmax.random_transformer(d, d + 2, seed=seed, biases=True, residual=float(seed % 2))
    size, pick = size_of(d, seed, 7.0), list(PICKS.values())[seed % len(PICKS)]
    n = usual.network
    u = np.array(n.u)
    u[seed % len(u)] *= 1.0 + size
    other = Transformer(
        usual.matrix, unsoftmax.ReluNetwork(n.A, u, n.b, n.c, n.linear), usual.w0, usual.residual
    )

    def box(X: Array) -> Array:
        return np.where(pick(X), other(X), usual(X))

    return Case(box, d, box, exact=False)


def _network_corner(what: str, d: int, seed: int) -> Case:
    rng = generator(d, seed, 55)
    d = max(d, 2)
    size = size_of(d, seed, 7.0)
    name = ("tanh", "gelu", "silu", "relu")[seed % 4]
    model = Network(
        rng.standard_normal((d + 1, d)) / np.sqrt(d),
        rng.standard_normal((d + 1, 2)),
        0.5 * rng.standard_normal(d + 1),
        rng.standard_normal(2),
        activation=ACTIVATIONS[name],
    )
    a = rng.standard_normal(d) / np.sqrt(d)

    def function(x: Array) -> Array:
        y, z = np.array(model(x)), x @ a
        match what:
            case "one output bent":
                y[:, 0] += size * np.tanh(z) ** 2
            case "far out":
                y[:, 1] *= 1.0 + size * (np.abs(z) > 2.0)
            case "parity of signs":
                y[:, 0] += size * ((x > 0.0).sum(axis=1) % 2)
            case "odd norms":
                y[:, 0] += size * (np.floor(np.linalg.norm(x, axis=1)) % 2)
            case _:
                y += size * y**2
        return y

    oracle = unsoftmax.FunctionOracle(
        lambda X: function(X[:, 0]), OracleSpec(width=d, max_length=1, outputs=2)
    )
    return Case(oracle, d, function, exact=False, options={"family": "network"})


def _token_corner(what: str, d: int, seed: int) -> Case:
    size = size_of(d, seed, 7.0)
    model = unsoftmax.random_token_heads(8 + 2 * d, 2, heads=1 + seed % 2, seed=seed)
    V = model.vocabulary
    short = seed % 3 == 0

    def picked(ids: Array) -> object:
        match what:
            case "a token asks":
                return ids[:, -1] == V - 1
            case "a pair":
                return (ids == 1).any(axis=1) & (ids == 2).any(axis=1)
            case "parity of ids":
                return ids.sum(axis=1) % 2
            case "long":
                return np.full(len(ids), ids.shape[1] >= 17)
            case "last id twice":
                return (ids[:, :-1] == ids[:, -1:]).sum(axis=1) >= 2
            case _:
                return ids[:, 0] == ids[:, -1]

    def function(ids: Array) -> Array:
        return np.asarray(model(ids) + size * np.asarray(picked(ids), dtype=np.float64))

    def box(ids: Array) -> Array:
        y = function(ids)
        return FloatFormat.FLOAT32.store(y) if short else y

    return Case(box, None, function, exact=False, options={"vocabulary": V})


def _every_row(d: int, seed: int) -> Case:
    """Every row is answered behind a causal mask; only some rows are other ones."""
    d = max(d, 2)
    model = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d, biases=seed % 2 == 1)
    size = size_of(d, seed, 7.0)

    def off(n: int) -> Array:
        places = np.arange(n)
        which = [places == 0, places == 3, places % 2 == 1, places >= 12, places == n - 2][seed % 5]
        return np.asarray(1.0 + size * which)

    def box(X: Array) -> Array:
        n = X.shape[1]
        found = np.stack([model(X[:, : i + 1]) for i in range(n)], axis=1)
        return np.asarray(found * off(n)[None, :, None])

    def function(X: Array) -> Array:
        return np.asarray(model(X) * off(X.shape[1])[-1])

    return Case(box, d, function, exact=False, options={"row": "all", "outputs": d})


def _probabilities(what: str, d: int, seed: int) -> Case:
    size = size_of(d, seed, 7.0)
    vectors = seed % 2 == 1
    layer = unsoftmax.random_multi_head(d, 1 + seed % 3 % 2, seed=seed, outputs=3 if vectors else None)
    if vectors:
        layer = MultiHead(
            [SingleHead(h.matrix, h.v - h.v.mean(axis=1, keepdims=True), h.w0) for h in layer.heads],
            np.asarray(layer.c) - np.mean(layer.c),
        )

    def logits(X: Array) -> Array:
        y = layer(X)
        match what:
            case "warmer beyond":
                return np.asarray(np.where(np.abs(y) > 3.0, y * (1.0 + size), y))
            case "long":
                return np.asarray(y * (1.0 + size * (X.shape[1] >= 9)))
            case _:
                return np.asarray(y)

    def box(X: Array) -> Array:
        y = logits(X)
        if vectors:
            w = np.exp(y - y.max(axis=1, keepdims=True))
            p = w / w.sum(axis=1, keepdims=True)
        else:
            p = 0.5 * (1.0 + np.tanh(0.5 * y))
        even = size / (3.0 if vectors else 2.0)
        return np.asarray(p * (1.0 - size) + even if what == "smoothed" else p)

    def function(X: Array) -> Array:
        if what != "smoothed":
            return logits(X)
        p = np.clip(box(X), 1e-300, 1.0)
        if vectors:
            y = np.log(p)
            return np.asarray(y - y.mean(axis=1, keepdims=True))
        return np.asarray(np.log(p) - np.log1p(-np.minimum(p, 1 - 1e-16)))

    return Case(box, d, function, exact=False, options={"probabilities": True})


def _skips(what: str, d: int, seed: int) -> Case:
    size = size_of(d, seed, 8.0)
    vectors = seed % 2 == 1
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d if vectors else None)
    rng = generator(d, seed, 56)
    S = rng.standard_normal((d, d) if vectors else d)
    skipped = MultiHead(layer.heads, layer.c, S)

    def box(X: Array) -> Array:
        y = np.array(skipped(X))
        match what:
            case "of the first row":
                y += size * (X[:, 0] @ S)
            case "in long sequences":
                y += size * (X[:, -1] @ S) * (X.shape[1] > 10)
            case "of a bent row":
                y += size * (np.tanh(X[:, -1]) @ S)
            case _:
                y += size * (np.abs(X[:, -1]) @ S)
        return y

    return Case(box, d, box, exact=False, options={"outputs": d} if vectors else {})


KINDS: dict[str, Maker] = {
    "corner: float32 layer, one output": _short_layer,
    "corner: block, one output": _block_corner,
    "corner: Transformer, one neuron": _transformer_corner,
    **{
        f"corner: network, {name}": partial(_network_corner, name)
        for name in ("one output bent", "far out", "parity of signs", "odd norms", "squared")
    },
    **{
        f"corner: tokens, {name}": partial(_token_corner, name)
        for name in ("a token asks", "a pair", "parity of ids", "long", "last id twice", "ends alike")
    },
    "corner: every row": _every_row,
    **{
        f"corner: probabilities, {name}": partial(_probabilities, name)
        for name in ("warmer beyond", "long", "smoothed")
    },
    **{
        f"corner: skip {name}": partial(_skips, name)
        for name in ("of the first row", "in long sequences", "of a bent row", "of absolute entries")
    },
}
SLOW: frozenset[str] = frozenset(KINDS)
