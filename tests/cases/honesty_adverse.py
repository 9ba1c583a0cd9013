"""Boxes for the honesty fuzzer as an adversary makes them: one large thing that hides what a part of the
sequences is answered otherwise in: a constant, a skip connection, a linear part, strong scores, other
outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_near import mixed, near_members, picks
from tests.cases.honesty_twists import column, generator, told
from unsoftmax import (
    GatedNetwork,
    Model,
    MultiHead,
    Network,
    OracleSpec,
    ReluNetwork,
    SingleHead,
    Transformer,
)
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models.parts.activations import ACTIVATIONS

__all__ = ["KINDS", "SLOW"]

_PART = 71  # of the seed


def _size(rng: np.random.Generator, least: float = 9.0) -> float:
    return float(10.0 ** -rng.uniform(0.3, least))


def _large(rng: np.random.Generator, most: float) -> float:
    return float(10.0 ** rng.uniform(0.0, most))


def _sometimes(usual: Function, other: Function, rng: np.random.Generator) -> Function:
    names = list(picks())
    return mixed(usual, other, picks()[names[int(rng.integers(len(names)))]])


def _warm(head: SingleHead, size: float) -> SingleHead:
    return SingleHead((1.0 + size) * head.W, head.v, head.w0, head.c)


def _of_rows(function: Function, d: int, outputs: int | None, family: str) -> Case:
    """A box of single rows."""
    spec = OracleSpec(width=d, max_length=1, outputs=outputs)
    oracle = unsoftmax.FunctionOracle(lambda X: function(X[:, 0]), spec)
    return Case(oracle, d, function, exact=False, options={"family": family})


# Heads.


def _stored_beside_a_constant(d: int, seed: int) -> Case:
    """What another W moves is below the last digit of float32 beside the constant."""
    rng = generator(d, seed, _PART)
    drawn = unsoftmax.random_single_head(d, seed=seed)
    usual = SingleHead(drawn.W, drawn.v, None, _large(rng, 5.0))
    function = _sometimes(usual, _warm(usual, _size(rng, 4.0)), rng)
    return Case(lambda X: FloatFormat.FLOAT32.store(function(X)), d, function, exact=False)


def _two_temperatures(d: int, seed: int) -> Case:
    """A little warmer or a little colder, by the sign of the first row."""
    head, size = unsoftmax.random_single_head(d, seed=seed), 10.0 ** -(4 + seed % 6)
    box = mixed(_warm(head, -size), _warm(head, size), lambda X: X[:, 0, 0] > 0.0)
    return Case(box, d, box, exact=False)


def _saturated(d: int, seed: int) -> Case:
    rng = generator(d, seed, _PART)
    drawn, strength = unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1), _large(rng, 8.0)
    w0 = None if drawn.w0 is None else np.sqrt(strength) * drawn.w0
    usual = SingleHead(strength * drawn.W, drawn.v, w0, drawn.c)
    box = _sometimes(usual, _warm(usual, _size(rng)), rng)
    return Case(box, d, box, exact=False)


def _faint_output(d: int, seed: int) -> Case:
    """The faint one of several outputs has another W."""
    rng = generator(d, seed, _PART)
    drawn = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d + 1)
    sizes = np.ones(d + 1)
    sizes[0] = 1.0 / _large(rng, 6.0)
    usual = MultiHead([SingleHead(head.W, head.v * sizes) for head in drawn.heads], drawn.c * sizes)
    warm = MultiHead([_warm(head, 1.0) for head in usual.heads], usual.c)

    def other(X: Array) -> Array:
        found = np.array(usual(X))
        found[:, 0] = warm(X)[:, 0]
        return found

    box = _sometimes(usual, other, rng)
    return Case(box, d, box, exact=False, options=told(usual))


def _large_skip(d: int, seed: int) -> Case:
    rng = generator(d, seed, _PART)
    drawn = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d if seed % 3 == 0 else None)
    skip = _large(rng, 8.0) * rng.standard_normal((d,) if drawn.outputs is None else (d, d))
    size = _size(rng)
    usual = MultiHead(drawn.heads, drawn.c, skip)
    box = _sometimes(usual, MultiHead([_warm(head, size) for head in drawn.heads], drawn.c, skip), rng)
    return Case(box, d, box, exact=False, options=told(usual))


def _short_rows(d: int, seed: int) -> Case:
    """Rows may only be so short that scores are faint; another W in some sequences."""
    rng = generator(d, seed, _PART)
    outputs = d + 1 if seed % 3 == 0 else None
    usual = unsoftmax.random_multi_head(
        d, 1 + seed % 4 // 3, seed=seed, outputs=outputs, biases=seed % 2 == 1
    )
    size = _size(rng, 6.0)
    other = MultiHead([_warm(head, size) for head in usual.heads], usual.c)
    box, bound = _sometimes(usual, other, rng), 1.0 / _large(rng, 4.0)
    return Case(box, d, box, exact=False, options={**told(usual), "input_bound": bound})


# Transformers, networks, blocks, tokens.


def _transformer(what: str, d: int, seed: int) -> Case:
    """Beside a large linear part or a large skip connection, another W or another network."""
    rng, size = generator(d, seed, _PART), 0.0
    drawn = unsoftmax.random_transformer(d, d + 2, seed=seed, biases=True)
    n, residual, linear = drawn.network, float(seed % 2), drawn.network.linear
    if what == "residual":
        residual = _large(rng, 6.0)
    else:
        linear = _large(rng, 8.0) * rng.standard_normal(d)
    size = _size(rng)
    warmer, louder = (1.0 + size, 1.0) if seed % 3 else (1.0, 1.0 + size)

    def made(in_scores: float, in_network: float) -> Transformer:
        network = ReluNetwork(n.A, in_network * n.u, n.b, n.c, linear)
        return Transformer(in_scores * drawn.W, network, drawn.w0, residual)

    box = _sometimes(made(1.0, 1.0), made(warmer, louder), rng)
    return Case(box, d, box, exact=False)


def _network(d: int, seed: int) -> Case:
    """A large constant beside neurons that are steeper on one side."""
    rng, d = generator(d, seed, _PART), max(d, 2)
    A, U, b = rng.standard_normal((d + 1, d)) / np.sqrt(d), rng.standard_normal((d + 1, 2)), rng.random(d + 1)
    c, activation = _large(rng, 8.0) * rng.standard_normal(2), ("tanh", "gelu", "relu", "silu")[seed % 4]
    usual, other = (Network(k * A, U, b, c, activation=ACTIVATIONS[activation]) for k in (1, 1 + _size(rng)))
    box = mixed(usual, other, lambda x: x[:, 0] > 0.0)
    return _of_rows(box, d, 2, "network")


def _gated(d: int, seed: int) -> Case:
    rng, d = generator(d, seed, _PART), max(d, 4)
    shapes = ((2, d), (2, d), (2, d), (2,), (2,), (d,))
    gate, up, down, in_gate, in_up, c = (rng.standard_normal(shape) / np.sqrt(d) for shape in shapes)
    c, size = _large(rng, 8.0) * c, _size(rng)
    usual, other = (GatedNetwork(k * gate, up, down, in_gate, in_up, c) for k in (1.0, 1.0 + size))
    box = mixed(usual, other, lambda x: x[:, 0] > 0.0)
    return _of_rows(box, d, d, "network")


def _relu_network(d: int, seed: int) -> Case:
    rng, size = generator(d, seed, _PART), 0.0
    n = unsoftmax.random_relu_network(d, 2 + seed % 4, seed=seed, biases=True)
    linear, c, size = _large(rng, 8.0) * rng.standard_normal(d), _large(rng, 8.0), _size(rng)
    usual, other = (ReluNetwork(n.A, k * n.u, n.b, c, linear) for k in (1.0, 1.0 + size))
    box = mixed(usual, other, lambda x: x[:, 0] > 0.0)
    return _of_rows(box, d, None, "relu-network")


def _block(what: str, d: int, seed: int) -> Case:
    """A block with a faint attention, or with a large constant in its answers; one of its arrays is larger
    in some sequences."""
    rng = generator(d, seed, _PART)
    member = near_members()["a pre-norm block" if seed % 2 else "a post-norm block"](d, seed)
    tensors = dict(member.model.tensors())
    if what == "faint":
        for name in tensors:
            if name.startswith("attention") and name.endswith(".v"):
                tensors[name] = tensors[name] / _large(rng, 6.0)
        changed = [name for name in tensors if name.startswith("attention") and ".W" in name]
    else:
        last = "network.c" if seed % 2 else "second.layer.bias"
        tensors[last] = _large(rng, 5.0) * rng.standard_normal(tensors[last].shape)
        changed = [name for name in tensors if name.endswith((".v", ".A", ".U")) or ".W" in name]
    name, size = changed[int(rng.integers(len(changed)))], _size(rng)
    make: Callable[[dict[str, Array]], Model] = type(member.model).from_tensors
    box = _sometimes(make(tensors), make(tensors | {name: (1.0 + size) * tensors[name]}), rng)
    return Case(box, member.width, box, exact=False, options=dict(member.options))


def _tokens(d: int, seed: int) -> Case:
    """A large constant; where the last id asks that is rare, long sequences are answered otherwise."""
    rng = generator(d, seed, _PART)
    model = unsoftmax.random_token_heads(8 + 2 * d, 2, heads=1 + seed % 2, seed=seed)
    c, size, rare = _large(rng, 6.0), _size(rng, 7.0), (3, model.vocabulary // 2)[seed % 2]

    def box(ids: Array) -> Array:
        other = (ids[:, -1] < rare) & (ids.shape[1] >= 2 + seed % 3)
        return np.asarray(model(ids) * (1.0 + size * column(other.astype(float), model(ids))) + c)

    return Case(box, None, box, exact=False, options={"vocabulary": model.vocabulary})


def _every_row(d: int, seed: int) -> Case:
    """Of all rows that are answered, those between the first three and the last have another W."""
    rng, d = generator(d, seed, _PART), max(d, 2)
    model = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d)
    size = _size(rng)
    other = MultiHead([_warm(head, size) for head in model.heads], model.c)

    def box(X: Array) -> Array:
        n = X.shape[1]
        return np.stack([(other if 3 <= i < n - 1 else model)(X[:, : i + 1]) for i in range(n)], axis=1)

    def function(X: Array) -> Array:
        return other(X) if X.shape[1] > 3 else model(X)

    return Case(box, d, function, exact=False, options={"row": "all", "outputs": d})


KINDS: dict[str, Maker] = {
    "adverse: float32 beside a constant": _stored_beside_a_constant,
    "adverse: two temperatures": _two_temperatures,
    "adverse: saturated scores": _saturated,
    "adverse: a faint output": _faint_output,
    "adverse: a large skip": _large_skip,
    "adverse: short rows": _short_rows,
    "adverse: a large residual": partial(_transformer, "residual"),
    "adverse: a large linear part": partial(_transformer, "linear"),
    "adverse: a network's constant": _network,
    "adverse: a gated network's constant": _gated,
    "adverse: a ReLU network's linear part": _relu_network,
    "adverse: a block's faint attention": partial(_block, "faint"),
    "adverse: a block's constant": partial(_block, "constant"),
    "adverse: tokens beside a constant": _tokens,
    "adverse: rows before the last": _every_row,
}
SLOW: frozenset[str] = frozenset(KINDS)
