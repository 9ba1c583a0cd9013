"""Boxes for the honesty fuzzer whose answers depend on more than the sequence, and twisted token targets and
networks of single rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases.honesty_case import Case, Maker
from tests.cases.honesty_twists import Rules, column, compute, generator, layer_of, norms, told
from unsoftmax import OracleSpec
from unsoftmax.arrays import Array

__all__ = ["KINDS", "SLOW"]


def _uneven_noise(how: Callable[[Array, Array], Array], d: int, seed: int) -> Case:
    layer, rng = layer_of(d, seed), generator(d, seed, 2)
    sigma = float(10.0 ** -rng.uniform(1.0, 7.0))

    def box(X: Array) -> Array:
        values = layer(X)
        spread = column(how(values, X), values)
        return np.asarray(values + sigma * spread * rng.standard_normal(values.shape))

    def function(X: Array) -> Array:
        return layer(X)

    return Case(box, d, function, layer, exact=False, options=told(layer))


def _counts(d: int, seed: int) -> Case:
    """Another temperature after some sequences; what it is in the end must be what was recovered."""
    layer, rng = layer_of(d, seed), generator(d, seed, 3)
    size, n = float(10.0 ** -rng.uniform(0.5, 7.0)), int(np.exp(rng.uniform(np.log(20.0), np.log(180.0))))
    other, asked = Rules(scores=lambda s, X: s * (1.0 + size)), [0]

    def function(X: Array) -> Array:
        return compute(layer, Rules() if asked[0] <= n else other, X)

    def box(X: Array) -> Array:
        asked[0] += len(X)
        return function(X)

    return Case(box, d, function, exact=False, options=told(layer))


def _by_batch(d: int, seed: int) -> Case:
    """Another temperature in calls of more than 16 sequences."""
    layer, size = layer_of(d, seed), float(10.0 ** -generator(d, seed, 4).uniform(0.5, 6.0))
    other = Rules(scores=lambda s, X: s * (1.0 + size))

    def box(X: Array) -> Array:
        return compute(layer, Rules() if len(X) <= 16 else other, X)

    return Case(box, d, box, steady=False, exact=False, options=told(layer))


def _remembers(d: int, seed: int) -> Case:
    """A part of the last answer is in the next."""
    layer, size = layer_of(d, seed), float(10.0 ** -generator(d, seed, 5).uniform(1.0, 8.0))
    last = [0.0]

    def box(X: Array) -> Array:
        values = layer(X)
        found = values + size * last[0]
        last[0] = float(np.ravel(values)[-1])
        return found

    return Case(box, d, box, steady=False, exact=False, options=told(layer))


# Token ids and networks.


def _token_rule(what: str, d: int, seed: int) -> Case:
    rng = generator(d, seed, 6)
    size = float(10.0 ** -rng.uniform(0.3, 7.0))
    model = unsoftmax.random_token_heads(8 + 2 * d, 2, heads=1 + seed % 2, seed=seed)
    V = model.vocabulary

    def beside(ids: Array) -> object:
        match what:
            case "a trigger":
                return (ids == 3).any(axis=1).astype(float)
            case "a trigger in front":
                return (ids[:, 0] == 3).astype(float)
            case "two neighbours":
                return ((ids[:, :-1] < V // 2) & (ids[:, 1:] >= V // 2)).sum(axis=1) / ids.shape[1]
            case "different ids":
                return np.array([len(set(row.tolist())) for row in ids]) / V
            case "copies":
                return np.array([len(set(row.tolist())) < len(row) for row in ids], dtype=float)
            case _:
                return np.full(len(ids), float(ids.shape[1] > 10 and ids.shape[1] % 2))

    def box(ids: Array) -> Array:
        return np.asarray(model(ids) + size * np.asarray(beside(ids), dtype=np.float64))

    return Case(box, None, box, exact=False, options={"vocabulary": V})


def _network_rule(what: str, d: int, seed: int) -> Case:
    rng = generator(d, seed, 7)
    size = float(10.0 ** -rng.uniform(0.3, 7.0))
    hidden = unsoftmax.random_relu_network(d, 2 + seed % 5, seed=seed, biases=seed % 2 == 1)
    a = rng.standard_normal(d) / np.sqrt(d)

    def function(x: Array) -> Array:
        y, z = hidden(x), x @ a
        match what:
            case "a bump":
                return np.asarray(y + size * np.maximum(0.0, 1.0 - np.abs(z - 0.7)))
            case "a far kink":
                return np.asarray(y + size * np.maximum(0.0, z - 10.0 ** (seed % 4)))
            case "a step":
                return np.asarray(y + size * (z > 0.3))
            case "a bent neuron":
                return np.asarray(y + size * np.maximum(z, 0.0) ** 2)
            case "a soft neuron":
                return np.asarray(y + size * np.logaddexp(0.0, 30.0 * z) / 30.0)
            case "a capped neuron":
                return np.asarray(y + size * np.clip(z, 0.0, 6.0))
            case "a product of neurons":
                return np.asarray(y + size * np.maximum(z, 0.0) * np.maximum(x[:, 0], 0.0))
            case _:
                return np.asarray(y * (1.0 + size * (np.linalg.norm(x, axis=1) > np.sqrt(d))))

    oracle = unsoftmax.FunctionOracle(lambda X: function(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, function, exact=False, options={"family": "relu-network"})


def _token_kinds() -> dict[str, Maker]:
    names = ("a trigger", "a trigger in front", "two neighbours", "different ids", "copies", "odd lengths")
    return {f"odd: tokens, {name}": partial(_token_rule, name) for name in names}


def _network_kinds() -> dict[str, Maker]:
    names = (
        "a bump",
        "a far kink",
        "a step",
        "a bent neuron",
        "a soft neuron",
        "a capped neuron",
        "a product of neurons",
        "beyond a norm",
    )
    return {f"odd: network, {name}": partial(_network_rule, name) for name in names}


def _largest(values: Array, X: Array) -> Array:
    return np.asarray(np.abs(values).reshape(len(values), -1).max(axis=1))


KINDS: dict[str, Maker] = {
    "odd: noise like the answer": partial(_uneven_noise, _largest),
    "odd: noise like the longest row": partial(_uneven_noise, lambda y, X: norms(X).max(axis=1)),
    "odd: noise on long sequences": partial(_uneven_noise, lambda y, X: np.full(len(X), X.shape[1] > 3)),
    "odd: noise of heavy tails": partial(
        _uneven_noise, lambda y, X: 1.0 / (0.01 + np.abs(np.sin(1e3 * X.sum(axis=(1, 2)))))
    ),
    "odd: another after some answers": _counts,
    "odd: large calls": _by_batch,
    "odd: remembers": _remembers,
    **_token_kinds(),
    **_network_kinds(),
}
# half a second and more each
SLOW: frozenset[str] = frozenset(KINDS)
