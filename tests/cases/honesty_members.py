"""Models for the honesty fuzzer, each made from (width, seed)."""

from __future__ import annotations

import numpy as np

import unsoftmax
from tests.cases import multi_heads
from unsoftmax import MultiHead, ReluNetwork, SingleHead, Transformer

__all__ = [
    "beside_a_constant",
    "full_rank_vectors",
    "large_output_bias",
    "linear_after_skip",
    "off_near_the_origin",
    "one_head",
    "rng_of",
    "several_heads",
    "several_of_kind",
    "several_vectors",
    "trained_layer",
    "transformer",
    "transformer_without_biases",
    "vectors",
    "vectors_with_biases",
]


def rng_of(d: int, seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng([seed, d, part])


def beside_a_constant(d: int, seed: int) -> SingleHead:
    head = unsoftmax.random_single_head(d, seed=seed)
    return SingleHead(head.matrix, head.v, None, 10.0 ** (seed % 11))


def vectors(d: int, seed: int) -> SingleHead:
    rng = rng_of(d, seed, 1)
    m = int(rng.integers(1, d + 3))
    return SingleHead(rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal((d, m)), None, 0.0)


def vectors_with_biases(d: int, seed: int) -> SingleHead:
    rng = rng_of(d, seed, 2)
    m = int(rng.integers(1, d + 3))
    return SingleHead(
        rng.standard_normal((d, d)) / np.sqrt(d),
        rng.standard_normal((d, m)),
        rng.standard_normal(d),
        rng.standard_normal(m),
    )


def several_vectors(d: int, seed: int) -> MultiHead:
    rng = rng_of(d, seed, 3)
    return unsoftmax.random_multi_head(
        d, int(rng.integers(2, 4)), seed=seed, outputs=int(rng.integers(2, d + 3)), biases=seed % 2 == 1
    )


def full_rank_vectors(d: int, seed: int) -> MultiHead:
    rng = rng_of(d, seed, 4)
    return unsoftmax.random_multi_head(d, 2, d, seed=seed, outputs=int(rng.integers(2, d + 2)))


def trained_layer(d: int, seed: int) -> MultiHead:
    """Heads as in trained layers: small W beside query biases, values of uneven size."""
    rng = rng_of(d, seed, 5)
    layer = unsoftmax.random_multi_head(d, 2, seed=seed, outputs=d, biases=True, scale=0.2)
    return MultiHead(
        [
            SingleHead(head.matrix, head.v * np.exp(rng.normal(0.0, 1.0, d)), 3.0 * np.asarray(head.w0))
            for head in layer.heads
        ],
        layer.c,
    )


def transformer(d: int, seed: int) -> Transformer:
    return unsoftmax.random_transformer(
        d, int(rng_of(d, seed, 6).integers(1, 7)), seed=seed, biases=True, residual=float(seed % 2)
    )


def transformer_without_biases(d: int, seed: int) -> Transformer:
    return unsoftmax.random_transformer(d, int(rng_of(d, seed, 7).integers(2, 7)), seed=seed)


def off_near_the_origin(d: int, seed: int) -> Transformer:
    """Every neuron is off around the origin."""
    rng = rng_of(d, seed, 8)
    m = int(rng.integers(2, 7))
    A = rng.standard_normal((m, d))
    network = ReluNetwork(A, rng.standard_normal(m), -rng.uniform(0.3, 1.5, m) * np.linalg.norm(A, axis=1))
    return Transformer(rng.standard_normal((d, d)) / np.sqrt(d), network)


def linear_after_skip(d: int, seed: int) -> Transformer:
    """Attention with a skip connection, read by a vector."""
    rng = rng_of(d, seed, 9)
    network = ReluNetwork(np.empty((0, d)), np.empty(0), linear=rng.standard_normal(d))
    return Transformer(rng.standard_normal((d, d)) / np.sqrt(d), network, residual=1.0)


def large_output_bias(d: int, seed: int) -> Transformer:
    model = unsoftmax.random_transformer(d, 4, seed=seed, biases=True)
    n = model.network
    return Transformer(model.matrix, ReluNetwork(n.A, n.u, n.b, 10.0 ** (seed % 7), n.linear))


def one_head(d: int, seed: int) -> SingleHead:
    return unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1)


def several_heads(d: int, seed: int) -> MultiHead:
    return unsoftmax.random_multi_head(max(d, 1), 2 + seed % 2, seed=seed, biases=seed % 3 == 0)


def several_of_kind(kind: str, d: int, seed: int) -> MultiHead:
    return multi_heads.KINDS[kind](max(d, 3), seed)
