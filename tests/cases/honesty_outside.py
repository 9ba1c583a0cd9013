"""Boxes near the class for the honesty fuzzer: other functions of longer sequences, or a little beside a
softmax."""

from __future__ import annotations

import numpy as np

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Function
from tests.cases.honesty_members import (
    beside_a_constant,
    large_output_bias,
    rng_of,
    several_heads,
    several_vectors,
    vectors,
)
from unsoftmax import MultiHead, SingleHead, Transformer
from unsoftmax.arrays import Array

__all__ = [
    "bounded_warmer",
    "constant_and_warmer",
    "denominator",
    "faint_head_changes",
    "three_or_more_otherwise",
    "transformer_warmer",
    "vector_normalised",
    "vector_sine",
    "vector_warmer",
    "warmer_for_three",
]


def denominator(d: int, seed: int) -> Function:
    """A softmax whose denominator has a little more in it."""
    rng = rng_of(d, seed, 12)
    W, v = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)
    v /= np.linalg.norm(v)

    def box(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, W, X[:, -1])
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        return np.asarray(np.einsum("bn,bnd,d->b", weights, X, v) / (weights.sum(axis=1) + 1e-3))

    return box


def three_or_more_otherwise(head: SingleHead, factor: float) -> Function:
    """The head, with another W for three and more rows."""
    other = SingleHead(factor * head.W, head.v, head.w0, head.c)
    return lambda X: head(X) if X.shape[1] < 3 else other(X)


def warmer_for_three(d: int, seed: int) -> Function:
    return three_or_more_otherwise(answers.hard_head(d, seed=seed), 1.05)


def vector_warmer(d: int, seed: int) -> Case:
    head = vectors(d, seed)
    box = three_or_more_otherwise(head, 1.01)
    return Case(box, d, box, options={"outputs": head.outputs})


def vector_sine(d: int, seed: int) -> Case:
    layer = several_vectors(d, seed)

    def box(X: Array) -> Array:
        return np.asarray(layer(X) + 1e-5 * np.sin(X.sum(axis=(1, 2)))[:, None])

    return Case(box, d, box, options={"outputs": layer.outputs})


def vector_normalised(d: int, seed: int) -> Case:
    layer = several_vectors(d, seed)

    def box(X: Array) -> Array:
        return np.asarray(layer(X) / np.sqrt(1.0 + np.square(layer(X)).mean(axis=1, keepdims=True)))

    return Case(box, d, box, options={"outputs": layer.outputs})


def constant_and_warmer(d: int, seed: int) -> Function:
    head = beside_a_constant(d, seed)
    return three_or_more_otherwise(head, 3.0 if seed % 2 else 1.001)


def faint_head_changes(d: int, seed: int) -> Function:
    """The faint one of two heads is another for three and more rows."""
    layer = unsoftmax.random_multi_head(d, 2, seed=seed)
    first, second = layer.heads
    faint = 10.0 ** -(seed % 6)
    usual = MultiHead([first, SingleHead(second.matrix, faint * second.v)])
    other = MultiHead([first, SingleHead(2.0 * second.W, faint * second.v)])
    return lambda X: usual(X) if X.shape[1] < 3 else other(X)


def transformer_warmer(d: int, seed: int) -> Function:
    usual = large_output_bias(d, seed)
    other = Transformer(1.001 * usual.W, usual.network, usual.w0, usual.residual)
    return lambda X: usual(X) if X.shape[1] < 3 else other(X)


def bounded_warmer(d: int, seed: int) -> Case:
    """Several heads with another W beyond two rows, where rows may only be short."""
    layer = several_heads(d, seed)
    factor = 1.0 + 10.0 ** -(1 + seed % 5)
    other = MultiHead([SingleHead(factor * head.W, head.v, head.w0) for head in layer.heads], layer.c)

    def box(X: Array) -> Array:
        return (layer if X.shape[1] < 3 else other)(X)

    return Case(box, d, box, options={"input_bound": (0.03, 0.1, 0.3, 1.0)[seed % 4]})
