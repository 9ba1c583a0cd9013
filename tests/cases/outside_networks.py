"""Boxes that look like a one-layer Transformer or a two-layer network at first, and are none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax import random_relu_network, random_transformer
from unsoftmax.arrays import Array

Box = Callable[[Array], Array]


def _softplus(z: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, z))


def gelu_network(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed)
    n = model.network
    return lambda X: np.asarray((_softplus(4 * model.mixed(X) @ n.A.T) / 4) @ n.u)


def three_layers(d: int, seed: int) -> Box:
    rng = np.random.default_rng(seed)
    model = random_transformer(d, 6, seed=seed)
    A, B, u = rng.standard_normal((6, d)), rng.standard_normal((5, 6)), rng.standard_normal(5)
    return lambda X: np.asarray(np.maximum(np.maximum(model.mixed(X) @ A.T, 0) @ B.T + 0.3, 0) @ u)


def network_per_row(d: int, seed: int) -> Box:
    network = random_relu_network(d, 6, seed=seed)
    return lambda X: np.asarray(network(X.reshape(-1, d)).reshape(X.shape[:2]).mean(axis=1))


def network_of_last_row(d: int, seed: int) -> Box:
    network = random_relu_network(d, 6, seed=seed, biases=True)
    return lambda X: network(X[:, -1])


def network_before_attention(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed)

    def box(X: Array) -> Array:
        scores = model.scores(X)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray((weights * model.network(X.reshape(-1, d)).reshape(X.shape[:2])).sum(axis=1))

    return box


def absolute_sine(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed, biases=True)
    return lambda X: np.asarray(model(X) + 1e-6 * np.sin(X[:, 0, 0]))


def length_matters(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed, biases=True)
    return lambda X: np.asarray(model(X) * (1.0 if X.shape[1] <= 2 else 1.001))


def position_matters(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed)
    return lambda X: model(X + 0.01 * np.arange(X.shape[1])[None, ::-1, None])


def two_heads_before_network(d: int, seed: int) -> Box:
    one, two = random_transformer(d, 6, seed=seed), random_transformer(d, 6, seed=seed + 50)
    return lambda X: one.network(0.5 * one.mixed(X) + 0.5 * two.mixed(X))


def sigmoid_weights(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed)

    def box(X: Array) -> Array:
        weights = 0.5 + 0.5 * np.tanh(model.scores(X))
        return model.network(np.einsum("bn,bnd->bd", weights / X.shape[1], X))

    return box


def rounded_answers(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed, biases=True)
    return lambda X: np.round(model(X), 6)


def noisy_answers(d: int, seed: int) -> Box:
    model, rng = random_transformer(d, 6, seed=seed), np.random.default_rng(seed)
    return lambda X: np.asarray(model(X) + 1e-6 * rng.standard_normal(len(X)))


def float32_answers(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed, biases=True)
    return lambda X: model(X).astype(np.float32).astype(np.float64)


def leaky_step(d: int, seed: int) -> Box:
    model = random_transformer(d, 6, seed=seed)
    return lambda X: np.asarray(model(X) + 0.01 * (model.mixed(X)[:, 0] > 0.2))


BOXES: dict[str, Callable[[int, int], Box]] = {
    box.__name__: box
    for box in (
        gelu_network, three_layers, network_per_row, network_of_last_row, network_before_attention,
        absolute_sine, length_matters,
        position_matters, two_heads_before_network, sigmoid_weights, rounded_answers, noisy_answers,
        float32_answers, leaky_step,
    )
}  # fmt: skip
