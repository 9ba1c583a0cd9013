"""Boxes for the honesty fuzzer that round inside: cast rows, rows of few digits, float32 arithmetic, some
another function for longer sequences only; and the families that came with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from unsoftmax import Model, MultiHead, Network, OracleSpec, ReluNetwork, SingleHead, Transformer
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import EncoderBlock
from unsoftmax.models.parts.activations import ACTIVATIONS

__all__ = ["KINDS", "SLOW"]

_LONGER = 6  # rows from which on a box may be another function
_DIGITS = 6


def _held(part: Array) -> Array:
    """As float32 holds it."""
    return np.asarray(np.float64(np.float32(part)))


def _layer(d: int, seed: int, heads: int, outputs: int | None) -> MultiHead:
    drawn = unsoftmax.random_multi_head(d, heads, seed=seed, outputs=outputs, biases=seed % 2 == 1)
    parts = [
        SingleHead(_held(head.W), _held(head.v), None if head.w0 is None else _held(head.w0))
        for head in drawn.heads
    ]
    return MultiHead(parts, _held(np.asarray(drawn.c)))


def _warmer(model: MultiHead, factor: float) -> MultiHead:
    heads = [
        SingleHead(factor * head.W, head.v, None if head.w0 is None else factor * head.w0)
        for head in model.heads
    ]
    return MultiHead(heads, model.c)


def _simplest(model: MultiHead) -> Model:
    """One head as such, which is how it is recovered."""
    head = model.heads[0]
    return model if len(model.heads) > 1 else SingleHead(head.matrix, head.v, head.w0, model.c)


def _by_length(usual: Callable[[Array], Array], longer: Callable[[Array], Array]) -> Function:
    return lambda X: (usual if X.shape[1] < _LONGER else longer)(X)


def _in_float32(model: MultiHead) -> Function:
    """The heads with every step in float32."""

    def answer(batch: Array) -> Array:
        X = batch.astype(np.float32)
        total = np.float32(model.c)
        for head in model.heads:
            scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ np.float32(head.W).T)
            if head.w0 is not None:
                scores = scores + X @ np.float32(head.w0)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            total = total + np.einsum("bn,bnd->bd", weights, X) @ np.float32(head.v)
        return np.asarray(total).astype(np.float64)

    return answer


def _computed(heads: int, vectors: bool, d: int, seed: int) -> Case:
    """Heads in float32, for numbers of the width told and of 16 in turns; another W beyond five rows in every
    third."""
    d = max(d, 4) if vectors else (max(d, 2), 16)[seed % 2]
    outputs = d if vectors else None
    model = _layer(d, seed, heads, outputs)
    options: dict[str, object] = {} if outputs is None else {"outputs": outputs}
    if seed % 3:
        return Case(_in_float32(model), d, model, _simplest(model), exact=False, options=options)
    other = _warmer(model, 1.0 + 10.0 ** -(2 + seed % 2))
    box = _by_length(_in_float32(model), _in_float32(other))
    return Case(box, d, _by_length(model, other), exact=False, also=_simplest(other), options=options)


def _cast(rows: Array) -> Array:
    return FloatFormat.FLOAT32.store(rows)


def _cut(rows: Array) -> Array:
    """Rows to six digits."""
    with np.errstate(divide="ignore"):
        sizes = np.floor(np.log10(np.abs(rows)))
    step = 10.0 ** (_DIGITS - 1 - np.where(np.isfinite(sizes), sizes, 0.0))
    return np.asarray(np.round(rows * step) / step)


def _before(change: Callable[[Array], Array], d: int, seed: int) -> Case:
    """Heads behind rows that were changed first; another W beyond five rows in every third."""
    model = _layer(d, seed, 1 + seed % 2, None)
    if seed % 3:
        return Case(lambda X: model(change(X)), d, model, _simplest(model), exact=False)
    other = _warmer(model, 1.001)
    function = _by_length(model, other)
    return Case(lambda X: function(change(X)), d, function, exact=False, also=_simplest(other))


def _pooled(d: int, seed: int, shape: tuple[int, ...]) -> MultiHead:
    """A fixed query asks."""
    rng = np.random.default_rng([seed, d, 31])
    return MultiHead(
        [
            SingleHead(np.zeros((d, d)), rng.standard_normal(shape), rng.standard_normal(d))
            for _ in range(1 + seed % 2)
        ]
    )


def _pooling(vectors: bool, d: int, seed: int) -> Case:
    model = _pooled(d, seed, (d, d + 1) if vectors else (d,))
    options: dict[str, object] = {"outputs": d + 1} if vectors else {}
    return Case(lambda X: model(X), d, model, _simplest(model), options=options)


def _pooling_by_length(d: int, seed: int) -> Case:
    """Another query for longer sequences."""
    model = _pooled(d, seed, (d,))
    box = _by_length(model, _warmer(model, 1.0 + 10.0 ** -(2 + seed % 6)))
    return Case(box, d, box)


def _vector_network(d: int, seed: int) -> Case:
    rng = np.random.default_rng([seed, d, 32])
    m, k = int(rng.integers(2, 8)), 2 + seed % 3
    model = Network(
        rng.standard_normal((m, d)),
        rng.standard_normal((m, k)),
        0.5 * rng.standard_normal(m),
        rng.standard_normal(k),
        activation=ACTIVATIONS["relu"],
    )
    oracle = unsoftmax.FunctionOracle(lambda X: model(X[:, 0]), OracleSpec(width=d, max_length=1, outputs=k))
    return Case(oracle, d, model, model, options={"family": "network"})


def _transformer(d: int, seed: int) -> tuple[Transformer, Function]:
    """A Transformer, and the same with every step in float32."""
    drawn = unsoftmax.random_transformer(
        d, d + 1, seed=seed, biases=True, residual=float(seed % 2), scale=0.5
    )
    n = drawn.network
    A, u, W, c = (_held(part) for part in (n.A, n.u, drawn.W, np.asarray(n.c)))
    b = _held(np.zeros(len(A)) if n.b is None else n.b)
    model = Transformer(W, ReluNetwork(A, u, b, float(c)), None, drawn.residual)

    def answer(batch: Array) -> Array:
        X = batch.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ np.float32(W).T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("bn,bnd->bd", weights, X) + np.float32(model.residual) * X[:, -1]
        hidden = np.maximum(mixed @ np.float32(A).T + np.float32(b), 0)
        return np.asarray(hidden @ np.float32(u) + np.float32(c)).astype(np.float64)

    return model, answer


def _computed_transformer(d: int, seed: int) -> Case:
    d = max(d, 4)
    model, short = _transformer(d, seed)
    if seed % 3:
        return Case(short, d, model, model, exact=False)

    def box(X: Array) -> Array:
        return np.asarray(short(X) + 1e-4 * np.sin(X.sum(axis=(1, 2))))

    def function(X: Array) -> Array:
        return np.asarray(model(X) + 1e-4 * np.sin(X.sum(axis=(1, 2))))

    return Case(box, d, function, exact=False)


def _bare_block(d: int, seed: int) -> Case:
    """x + attention, then + network, without norms; in every third something else beside."""
    rng, d = np.random.default_rng([seed, 33]), 6
    heads = unsoftmax.random_multi_head(d, 2, seed=seed, outputs=d, biases=True)
    network = Network(
        rng.standard_normal((8, d)) / np.sqrt(d),
        rng.standard_normal((8, d)) / np.sqrt(8.0),
        0.3 * rng.standard_normal(8),
        rng.standard_normal(d),
        activation=ACTIVATIONS["relu" if seed % 2 else "gelu"],
    )
    block = EncoderBlock(heads, network)

    def box(X: Array) -> Array:
        return np.asarray(block(X) + (1e-6 * np.sin(X.sum(axis=(1, 2)))[:, None] if seed % 3 == 0 else 0.0))

    return Case(box, d, box, exact=False, options={"outputs": d})


KINDS: dict[str, Maker] = {
    "float32: heads, numbers": partial(_computed, 2, False),
    "float32: one head, numbers": partial(_computed, 1, False),
    "float32: heads, vectors": partial(_computed, 2, True),
    "float32: a Transformer": _computed_transformer,
    "rows: cast to float32": partial(_before, _cast),
    "rows: six digits": partial(_before, _cut),
    "pooling: numbers": partial(_pooling, False),
    "pooling: vectors": partial(_pooling, True),
    "outside: another query for longer sequences": _pooling_by_length,
    "network: ReLU, vectors": _vector_network,
    "block: without norms": _bare_block,
}
# half a second and more each
SLOW = frozenset(kind for kind in KINDS if "float32" in kind or "block" in kind)
