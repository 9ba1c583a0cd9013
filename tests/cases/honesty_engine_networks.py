"""Boxes for the honesty fuzzer that depart as engines do inside networks of single rows and inside blocks
with norms: hidden values that are quantised, cut, summed in short floats or left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_engines import DEPARTURES, of_kind, quantised, ten_bits
from tests.cases.honesty_twists import compute, generator
from unsoftmax import OracleSpec
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat

__all__ = ["KINDS", "SLOW"]

_PART = 101  # of the seed
_WIDTH = 6  # of blocks
_EPS = 1e-5  # of their norms, as torch has it
# a neuron that is bent goes on along a line from here, so that rows of any size get finite answers
_FAR = 1e6

_Hidden = Callable[[Array], Array]


def _tanh(z: Array) -> Array:
    return np.asarray(np.tanh(z))


def _relu(z: Array) -> Array:
    return np.asarray(np.maximum(z, 0.0))


def _silu(z: Array) -> Array:
    return np.asarray(0.5 * z * (1.0 + np.tanh(0.5 * z)))


def _short_sum(terms: Array) -> Array:
    """(n, m, k) summed over m, the running sum kept in float32."""
    total: Array = np.zeros((terms.shape[0], terms.shape[2]))
    for i in range(terms.shape[1]):
        total = FloatFormat.FLOAT32.store(total + terms[:, i])
    return total


def _sparse(size: float, h: Array) -> Array:
    """Hidden values fainter than a part of the largest are left out."""
    return np.where(np.abs(h) > size * np.abs(h).max(axis=1, keepdims=True), h, 0.0)


# from a size, what becomes of the values before and behind the activation
_DEPARTURES: dict[str, Callable[[float], tuple[_Hidden, _Hidden]]] = {
    "ten bits": lambda s: (lambda z: z, ten_bits),
    "127 levels": lambda s: (lambda z: z, lambda h: quantised(h, 127.0 / s, (1,))),
    "cut at a size": lambda s: (lambda z: np.clip(z, -2.0 / s**0.3, 2.0 / s**0.3), lambda h: h),
    "a capped activation": lambda s: (lambda z: z, lambda h: np.minimum(h, 1.0 / s**0.4)),
    "sparse": lambda s: (lambda z: z, partial(_sparse, s)),
    "whole steps": lambda s: (lambda z: np.rint(z / s) * s, lambda h: h),
    "a leak": lambda s: (lambda z: z, lambda h: h + s * np.minimum(h, 0.0) + s * (h == 0.0)),
    "bent": lambda s: (lambda z: z + s * z * np.minimum(np.abs(z), _FAR), lambda h: h),
    "normalised a little": lambda s: (
        lambda z: z,
        lambda h: h / (1.0 + s * np.linalg.norm(h, axis=1, keepdims=True)),
    ),
    "one neuron sees another": lambda s: (lambda z: z + s * np.tanh(np.roll(z, 1, axis=1)), lambda h: h),
}


def _network(place: int, make: Callable[[float], tuple[_Hidden, _Hidden]], d: int, seed: int) -> Case:
    """A network of single rows, numbers from ReLU neurons or vectors from any, exact or in float32."""
    seed = of_kind(place, seed)
    rng, d = generator(d, seed, _PART), max(d, 2)
    numbers, short = seed % 2 == 0, seed % 5 == 0
    activation = _relu if numbers else (_tanh, _silu, _relu)[seed % 3]
    before, behind = make(float(10.0 ** -rng.uniform(0.3, 8.0)))
    A, b = rng.standard_normal((d + 2, d)) / np.sqrt(d), 0.5 * rng.standard_normal(d + 2)
    U, c = rng.standard_normal((d + 2, 1 if numbers else 2)), rng.standard_normal(1 if numbers else 2)

    def function(x: Array) -> Array:
        h = behind(activation(before(x @ A.T + b)))
        y = _short_sum(h[:, :, None] * U) + c if short else h @ U + c
        return np.asarray(y[:, 0] if numbers else y)

    outputs = None if numbers else 2
    spec = OracleSpec(width=d, max_length=1, outputs=outputs)
    box = unsoftmax.FunctionOracle(lambda X: function(X[:, 0]), spec)
    family = "relu-network" if numbers else "network"
    return Case(box, d, function, exact=False, options={"family": family})


def _normed(X: Array) -> Array:
    centred = X - X.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + _EPS))


def _block(d: int, seed: int) -> Case:
    """A pre-norm block whose attention departs."""
    names = list(DEPARTURES)
    rng = generator(d, seed, _PART + 1)
    name = names[int(rng.integers(len(names)))]
    rules = DEPARTURES[name](float(10.0 ** -rng.uniform(0.3, 8.0)), rng, _WIDTH)
    heads = unsoftmax.random_multi_head(_WIDTH, 2, seed=seed, outputs=_WIDTH, biases=True)
    A, b = rng.standard_normal((8, _WIDTH)) / np.sqrt(_WIDTH), 0.3 * rng.standard_normal(8)
    U, c = rng.standard_normal((8, _WIDTH)) / np.sqrt(8.0), 0.3 * rng.standard_normal(_WIDTH)
    activation = (_relu, _silu)[seed % 2]
    attention: Function = partial(compute, heads, rules)

    def box(X: Array) -> Array:
        stream = X[:, -1] + attention(_normed(X))
        return np.asarray(stream + activation(_normed(stream) @ A.T + b) @ U + c)

    return Case(box, _WIDTH, box, exact=False, options={"outputs": _WIDTH, "family": "encoder-block"})


KINDS: dict[str, Maker] = {
    **{
        f"engine: network, {name}": partial(_network, place, make)
        for place, (name, make) in enumerate(_DEPARTURES.items())
    },
    "engine: block": _block,
}
SLOW: frozenset[str] = frozenset(KINDS)
