"""Boxes for the honesty fuzzer that depart from attention as engines and their shortcuts do: clipped scores,
keys left out, weights quantised while they run, sums in short floats, padding, learned rows in front. Every
departure meets every family and every kind of answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_twists import Rules, column, compute, generator, norms, told
from unsoftmax import MultiHead, OracleSpec, SingleHead
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat

__all__ = ["DEPARTURES", "KINDS", "SLOW", "Box", "case_of", "drawn", "of_kind", "quantised", "ten_bits"]

_PART = 83  # of the seed
_APART = 7919  # seeds of neighbouring kinds: a prime
_PADDED = 8  # rows to a multiple of which sequences are padded

# (size of the departure, its own random numbers, width) -> the rules
_Departure = Callable[[float, np.random.Generator, int], Rules]


def _direction(rng: np.random.Generator, d: int) -> Array:
    return np.asarray(rng.standard_normal(d) / np.sqrt(d))


# Scores and weights.


def quantised(values: Array, levels: float, axes: tuple[int, ...]) -> Array:
    """So many levels on either side of zero, up to the largest."""
    step = np.maximum(np.abs(values).max(axis=axes, keepdims=True), 1e-300) / levels
    return np.asarray(np.rint(values / step) * step)


def ten_bits(values: Array) -> Array:
    """Ten bits behind the first, as tensor cores take their operands."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent))


def _nucleus(size: float, weights: Array) -> Array:
    """The largest weights that make up all but a part."""
    order = np.argsort(-weights, axis=1, kind="stable")
    sorted_ = np.take_along_axis(weights, order, axis=1)
    before = (np.cumsum(sorted_, axis=1) - sorted_) / weights.sum(axis=1, keepdims=True)
    kept = np.zeros_like(weights)
    np.put_along_axis(kept, order, np.where(before < 1.0 - size, sorted_, 0.0), axis=1)
    return kept


def _chunks(weights: Array, store: Callable[[Array], Array]) -> Array:
    """Chunks of eight, each divided by its sum, which is kept in a short format."""
    found = np.empty_like(weights)
    for first in range(0, weights.shape[1], 8):
        part = weights[:, first : first + 8]
        total = np.maximum(part.sum(axis=1, keepdims=True), 1e-300)
        found[:, first : first + 8] = part / total * store(total)
    return found


def _running_sum(weights: Array) -> Array:
    """What weights become when their running sum is kept in float16."""
    total = np.zeros(len(weights))
    found = np.empty_like(weights)
    for i in range(weights.shape[1]):
        after = FloatFormat.FLOAT16.store(total + weights[:, i])
        found[:, i], total = after - total, after
    return np.where(found.sum(axis=1, keepdims=True) > 0.0, found, weights)


def _beside(rows: Array) -> Array:
    """The score of every row with the row before it; nothing for the first."""
    found = np.zeros(rows.shape[:2])
    found[:, 1:] = np.einsum("bnd,bnd->bn", rows[:, 1:], rows[:, :-1]) / rows.shape[2]
    return found


_SCORES: dict[str, _Departure] = {
    "scores within eight": lambda s, r, d: Rules(scores=lambda a, X: np.clip(a, -8.0, 8.0)),
    "scores within a size": lambda s, r, d: Rules(scores=lambda a, X: np.clip(a, -2 / s**0.3, 2 / s**0.3)),
    "scores of 127 levels": lambda s, r, d: Rules(scores=lambda a, X: quantised(a, 127.0 / s, (1,))),
    "scores of ten bits": lambda s, r, d: Rules(scores=lambda a, X: ten_bits(a)),
    "a temperature by the angle": lambda s, r, d: Rules(scores=lambda a, X: a * (1.0 + s * _angle(X))),
    "a bias between neighbours": lambda s, r, d: Rules(scores=lambda a, X: a + s * _beside(X)),
    "the row before counts more": lambda s, r, d: Rules(
        scores=lambda a, X: a + s * (np.arange(X.shape[1]) == X.shape[1] - 2)
    ),
    "a cube of the score": lambda s, r, d: Rules(scores=lambda a, X: a + s * np.tanh(a) ** 3),
    "scores by whole parts": lambda s, r, d: Rules(scores=lambda a, X: np.rint(a / s) * s),
    "keys nearly normalised": lambda s, r, d: Rules(scores=lambda a, X: a / (1.0 + s * norms(X))),
    "a colder asking row": lambda s, r, d: Rules(
        scores=lambda a, X: a * (1.0 - s * np.exp(-(norms(X)[:, -1:] ** 2)))
    ),
    "a nucleus": lambda s, r, d: Rules(weights=lambda w, X: _nucleus(s, w)),
    "a bent exponential": lambda s, r, d: Rules(weights=lambda w, X: w * (1.0 + s * w)),
    "chunks in bfloat16": lambda s, r, d: Rules(weights=lambda w, X: _chunks(w, FloatFormat.BFLOAT16.store)),
    "chunks in float32": lambda s, r, d: Rules(weights=lambda w, X: _chunks(w, FloatFormat.FLOAT32.store)),
    "a running sum in float16": lambda s, r, d: Rules(weights=lambda w, X: _running_sum(w)),
    "weights of 255 levels": lambda s, r, d: Rules(
        weights=lambda w, X: np.where(w < w.max(axis=1, keepdims=True), quantised(w, 255.0 / s, (1,)), w)
    ),
    "the two largest share": lambda s, r, d: Rules(weights=lambda w, X: _shared(s, w)),
    "rows of zeros are padding": lambda s, r, d: Rules(weights=_without_zeros),
    "padding leaks": lambda s, r, d: Rules(
        weights=lambda w, X: w / (1.0 + s * (-X.shape[1] % _PADDED) / w.sum(axis=1, keepdims=True))
    ),
    "near copies count once": lambda s, r, d: Rules(weights=lambda w, X: w / _crowd(s, X)),
}


def _angle(X: Array) -> Array:
    size = np.maximum(norms(X)[:, 0] * norms(X)[:, -1], 1e-300)
    return np.asarray((np.einsum("bd,bd->b", X[:, 0], X[:, -1]) / size)[:, None])


def _without_zeros(weights: Array, X: Array) -> Array:
    kept = np.where(norms(X) > 0.0, weights, 0.0)
    return np.where(kept.sum(axis=1, keepdims=True) > 0.0, kept, weights)


def _shared(size: float, weights: Array) -> Array:
    """A part of the largest weight goes to the second."""
    if weights.shape[1] < 2:
        return weights
    order = np.argsort(-weights, axis=1, kind="stable")[:, :2]
    top = np.take_along_axis(weights, order, axis=1)
    moved = np.stack([top[:, 0] - size * (top[:, 0] - top[:, 1]), top[:, 1]], axis=1)
    found = weights.copy()
    np.put_along_axis(found, order, moved, axis=1)
    return found


def _crowd(size: float, X: Array) -> Array:
    """How many rows are closer to each than a size."""
    apart = np.linalg.norm(X[:, :, None] - X[:, None], axis=3)
    return np.asarray((apart < size).sum(axis=2), dtype=np.float64)


# Rows, values and answers.


def _pooled_beyond(X: Array, most: int) -> Array:
    """Rows beyond so many are means of pairs; the last one asks as it is."""
    if X.shape[1] <= most:
        return X
    early = X[:, : X.shape[1] - most]
    pairs = early[:, : 2 * (early.shape[1] // 2)].reshape(len(X), -1, 2, X.shape[2]).mean(axis=2)
    odd = early[:, 2 * (early.shape[1] // 2) :]
    return np.concatenate([pairs, odd, X[:, -most:]], axis=1)


def _merged(X: Array, size: float) -> Array:
    """The last row is moved a little towards the mean of all."""
    found = X.copy()
    found[:, -1] = (1.0 - size) * X[:, -1] + size * X.mean(axis=1)
    return found


def _by_order(size: float, y: Array, X: Array) -> Array:
    if X.shape[1] < 3:
        return y
    forward = np.einsum("bd,bd->b", X[:, 0], X[:, -1]) > np.einsum("bd,bd->b", X[:, 1], X[:, -1])
    return np.asarray(y + size * column(forward.astype(np.float64), y))


def _gate(size: float, rng: np.random.Generator, d: int) -> Rules:
    g = _direction(rng, d)
    return Rules(answers=lambda y, X: y * (1.0 + size * column(np.tanh(X[:, -1] @ g), y)))


def _highway(size: float, rng: np.random.Generator, d: int) -> Rules:
    g = _direction(rng, d)
    return Rules(answers=lambda y, X: y + size * column(np.maximum(X[:, -1] @ g, 0.0), y))


def _learned_row(size: float, rng: np.random.Generator, d: int) -> Rules:
    """A faint row of its own stands in front of every sequence from three rows on."""
    first = size * rng.standard_normal(d)
    return Rules(
        rows=lambda X: X if X.shape[1] < 3 else np.concatenate([np.tile(first, (len(X), 1, 1)), X], axis=1)
    )


def _masked(size: float, rng: np.random.Generator, d: int) -> Rules:
    """Rows far out in one direction count a part less."""
    g = _direction(rng, d)
    return Rules(weights=lambda w, X: w * np.where(X @ g > 1.5, 1.0 - size, 1.0))


_ROWS: dict[str, _Departure] = {
    "rows of 127 levels": lambda s, r, d: Rules(rows=lambda X: quantised(X, 127.0 / s, (1, 2))),
    "rows of ten bits": lambda s, r, d: Rules(rows=ten_bits),
    "entries within a size": lambda s, r, d: Rules(rows=lambda X: np.clip(X, -1.0 / s**0.4, 1.0 / s**0.4)),
    "pairs beyond sixteen": lambda s, r, d: Rules(rows=lambda X: _pooled_beyond(X, 16)),
    "pairs beyond sixty-four": lambda s, r, d: Rules(rows=lambda X: _pooled_beyond(X, 64)),
    "forty-eight rows at most": lambda s, r, d: Rules(rows=lambda X: X[:, -48:]),
    "a hundred rows at most": lambda s, r, d: Rules(rows=lambda X: X[:, -100:]),
    "the asking row leans to the mean": lambda s, r, d: Rules(rows=lambda X: _merged(X, s)),
    "absolute entries": lambda s, r, d: Rules(rows=lambda X: X + s * np.abs(X)),
    "long rows are normalised": lambda s, r, d: Rules(
        rows=lambda X: X / np.maximum(1.0, s * norms(X))[:, :, None]
    ),
    "a learned row in front": _learned_row,
    "rows far out count less": _masked,
    "a constant by the order": lambda s, r, d: Rules(answers=lambda y, X: _by_order(s, y, X)),
    "a readout by the length": lambda s, r, d: Rules(answers=lambda y, X: y * (1.0 + s * np.sin(X.shape[1]))),
    "a gate of the asking row": _gate,
    "a highway": _highway,
    "a soft limit": lambda s, r, d: Rules(answers=lambda y, X: np.tanh(s * y) / s),
    "a dead zone that is moved": lambda s, r, d: Rules(
        answers=lambda y, X: np.sign(y) * np.maximum(np.abs(y) - s, 0.0)
    ),
    "a part of the largest row": lambda s, r, d: Rules(
        answers=lambda y, X: y + s * column(norms(X).max(axis=1), y)
    ),
    "a wave of the answer": lambda s, r, d: Rules(answers=lambda y, X: y + s * np.sin(10.0 * y)),
}

DEPARTURES = {**_SCORES, **_ROWS}

# Families.

Box = Callable[[Rules], Function]


def _numbers(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, biases=seed % 3 == 0)
    return (lambda rules: partial(compute, layer, rules)), {}


def _vectors(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d, biases=seed % 3 == 0)
    return (lambda rules: partial(compute, layer, rules)), told(layer)


def _skip(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=d)

    def of(rules: Rules) -> Function:
        inner = replace(rules, answers=lambda y, X: y)
        return lambda X: rules.answers(X[:, -1] + compute(layer, inner, X), X)

    return of, told(layer)


def _transformer(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    drawn = unsoftmax.random_transformer(d, d + 2, seed=seed, biases=True, residual=float(seed % 2))
    mean = MultiHead([SingleHead(drawn.W, np.eye(d), drawn.w0)], np.zeros(d))

    def of(rules: Rules) -> Function:
        inner = replace(rules, answers=lambda y, X: y)
        return lambda X: rules.answers(drawn.network(compute(mean, inner, X) + drawn.residual * X[:, -1]), X)

    return of, {}


def _tokens(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    vocabulary = 8 + 2 * d
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed)
    embedding = generator(d, seed, _PART + 1).standard_normal((vocabulary, d))

    def of(rules: Rules) -> Function:
        return lambda ids: compute(layer, rules, embedding[ids])

    return of, {"vocabulary": vocabulary}


_FAMILIES = (_numbers, _vectors, _skip, _transformer, _tokens)


def drawn(d: int, seed: int) -> tuple[Box, dict[str, object]]:
    """A family and what the caller of `recover` is told; half of them answer numbers."""
    rng = generator(d, seed, _PART + 2)
    return _FAMILIES[max(0, int(rng.integers(-3, len(_FAMILIES))))](d, seed)


def case_of(function: Function, d: int, seed: int, options: dict[str, object]) -> Case:
    """The box behind answers of some kind: vectors in float32 in every third, numbers in every way."""
    rng = generator(d, seed, _PART + 3)
    width = None if "vocabulary" in options else d
    kinds = (
        ["exact", *answers.ANSWERS] if width and "outputs" not in options else ["exact", "exact", "float32"]
    )
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "exact":
        return Case(function, width, function, exact=False, options=options)
    if width is None or "outputs" in options:
        return Case(
            lambda X: FloatFormat.FLOAT32.store(function(X)), width, function, exact=False, options=options
        )
    inner = unsoftmax.FunctionOracle(function, OracleSpec(width=d))
    shown = (lambda X: np.clip(function(X), -20.0, 20.0)) if kind == "clipped" else function
    return Case(
        answers.ANSWERS[kind](inner, seed), d, shown, exact=False, labels="labels" in kind, options=options
    )


def of_kind(place: int, seed: int) -> int:
    """The seed of a kind, so that each of a round has a family and answers of its own."""
    return seed + _APART * place


def _engine(place: int, departure: _Departure, d: int, seed: int) -> Case:
    seed = of_kind(place, seed)
    rng = generator(d, seed, _PART)
    size = float(10.0 ** -rng.uniform(0.3, 8.0))
    made, options = drawn(d, seed)
    if "vocabulary" not in options and seed % 5 == 0:
        options = {**options, "input_bound": (1.0, 10.0, 100.0)[seed % 3]}
    return case_of(made(departure(size, rng, d)), d, seed, options)


KINDS: dict[str, Maker] = {
    f"engine: {name}": partial(_engine, place, make) for place, (name, make) in enumerate(DEPARTURES.items())
}
SLOW: frozenset[str] = frozenset(KINDS)
