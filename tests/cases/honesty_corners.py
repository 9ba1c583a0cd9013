"""Boxes for the honesty fuzzer that leave the class in a corner: rows of odd norm, late copies, scores beyond
a threshold, one output of several, a sequence that was asked before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Maker
from tests.cases.honesty_twists import Rules, column, compute, generator, layer_of, norms, told
from unsoftmax import OracleSpec
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat

__all__ = ["KINDS", "PICKS", "SLOW", "size_of"]


def size_of(d: int, seed: int, least: float = 8.0) -> float:
    return float(10.0 ** -generator(d, seed, 51).uniform(0.5, least))


# Sequences that are picked.


def _odd_norms(X: Array) -> NDArray[np.bool_]:
    return np.asarray(np.floor(norms(X)).sum(axis=1) % 2 == 1)


def _late_copies(X: Array) -> NDArray[np.bool_]:
    """A copy of the row before, in the second half."""
    half = X[:, X.shape[1] // 2 :]
    return np.asarray((half[:, 1:] == half[:, :-1]).all(axis=2).any(axis=1))


def _sign_parity(X: Array) -> NDArray[np.bool_]:
    return np.asarray((X > 0.0).sum(axis=(1, 2)) % 2 == 1)


def _majority(X: Array) -> NDArray[np.bool_]:
    return np.asarray((X[:, :, 0] > 0.0).mean(axis=1) > 0.5)


def _close_rows(X: Array) -> NDArray[np.bool_]:
    return np.asarray(np.linalg.norm(X[:, 0] - X[:, -1], axis=1) < 0.3 * np.sqrt(X.shape[2]))


PICKS: dict[str, Callable[[Array], NDArray[np.bool_]]] = {
    "odd norms": _odd_norms,
    "late copies": _late_copies,
    "parity of signs": _sign_parity,
    "most first entries": _majority,
    "first and last close": _close_rows,
    "long sequences": lambda X: np.full(len(X), X.shape[1] >= 17),
    "eleven to sixteen rows": lambda X: np.full(len(X), 11 <= X.shape[1] <= 16),
    "short asking row": lambda X: norms(X)[:, -1] < 0.3,
    "second row the longest": lambda X: norms(X).argmax(axis=1) == 1,
    "sum of rows": lambda X: X.sum(axis=(1, 2)) > 2.0 * np.sqrt(X.shape[2] * X.shape[1]),
}


def _column_off(d: int, seed: int) -> Case:
    """One output of several is scaled for the sequences picked."""
    d = max(d, 2)
    layer = unsoftmax.random_multi_head(d, 1 + seed % 3, seed=seed, outputs=d + 1, biases=seed % 2 == 1)
    size, pick = size_of(d, seed), list(PICKS.values())[seed % len(PICKS)]
    skip = np.zeros(d + 1)
    skip[seed % (d + 1)] = size

    def box(X: Array) -> Array:
        return np.asarray(layer(X) * (1.0 + skip * np.asarray(pick(X), dtype=float)[:, None]))

    return Case(box, d, box, exact=False, options={"outputs": d + 1})


def _picked(name: str, d: int, seed: int) -> Case:
    layer, size, pick = layer_of(d, seed), size_of(d, seed), PICKS[name]

    def scores(values: Array, X: Array) -> Array:
        return values * (1.0 + size * np.asarray(pick(X), dtype=float))[:, None]

    def box(X: Array) -> Array:
        return compute(layer, Rules(scores=scores), X)

    bound = {} if seed % 4 else {"input_bound": (1.0, 10.0, 100.0)[seed % 3]}
    return Case(box, d, box, exact=False, options={**told(layer), **bound})


# Another rule.


def _gap_capped(size: float, scores: Array) -> Array:
    """The difference to the largest score is no larger than 1 / size."""
    return np.asarray(np.maximum(scores, scores.max(axis=1, keepdims=True) - 1.0 / size))


_RULES: dict[str, Callable[[float], Rules]] = {
    "gap of scores capped": lambda s: Rules(scores=lambda a, X: _gap_capped(s, a)),
    "large scores stop": lambda s: Rules(scores=lambda a, X: np.minimum(a, 2.0 / s**0.3)),
    "negative scores leak": lambda s: Rules(scores=lambda a, X: np.where(a < 0.0, a * (1.0 - s), a)),
    "places counted back": lambda s: Rules(scores=lambda a, X: a - s * np.arange(X.shape[1])[::-1]),
    "own score": lambda s: Rules(
        scores=lambda a, X: a * np.where(np.arange(X.shape[1]) == X.shape[1] - 1, 1.0 + s, 1.0)
    ),
    "part linear": lambda s: Rules(
        weights=lambda w, X: w * (1.0 - s) + s * np.maximum(0, 1 + np.log(w + 1e-300))
    ),
    "the 32 largest": lambda s: Rules(
        weights=lambda w, X: (
            w if w.shape[1] <= 32 else np.where(w >= np.sort(w, axis=1)[:, -32:][:, :1], w, 0.0)
        )
    ),
    "keys two apart beyond twelve": lambda s: Rules(
        weights=lambda w, X: w if w.shape[1] < 12 else w * (1.0 - s * (np.arange(w.shape[1]) % 2))
    ),
    "values leak": lambda s: Rules(rows=lambda X: np.where(X < -3.0, X * (1.0 - s), X)),
    "short softmax": lambda s: Rules(
        weights=lambda w, X: FloatFormat.BFLOAT16.store(w) if X.shape[1] > 8 else w
    ),
    "the row before asks a little": lambda s: Rules(
        rows=lambda X: (
            np.concatenate([X[:, :-1], X[:, -1:] + s * X[:, -2:-1]], axis=1) if X.shape[1] > 1 else X
        )
    ),
    "first row sinks": lambda s: Rules(
        weights=lambda w, X: w * np.where(np.arange(w.shape[1]) == 0, 1.0 - s, 1.0)
    ),
    "mean of long sequences": lambda s: Rules(
        answers=lambda y, X: y + s * column(X[:, :, 0].mean(axis=1), y) * (X.shape[1] > 16)
    ),
    "answers to blocks of bits": lambda s: Rules(answers=lambda y, X: _blocks_of_bits(y, s)),
    "wave of the length": lambda s: Rules(scores=lambda a, X: a * (1.0 + s * np.sin(X.shape[1]))),
    "smoothed weights": lambda s: Rules(
        weights=lambda w, X: w / w.sum(axis=1, keepdims=True) + s / X.shape[1]
    ),
    "entmax for peaks": lambda s: Rules(weights=lambda w, X: np.where(w < 1e-3 * s, 0.0, w)),
    "rotated places": lambda s: Rules(rows=lambda X: _rotated(X, s)),
}


def _blocks_of_bits(y: Array, size: float) -> Array:
    step = 2.0 ** np.floor(np.log2(np.abs(y).max() + 1e-300) + np.log2(size))
    return np.asarray(np.rint(y / step) * step)


def _rotated(X: Array, size: float) -> Array:
    if X.shape[2] < 2:
        return X
    angle = size * np.arange(X.shape[1])[::-1]
    c, s = np.cos(angle), np.sin(angle)
    out = X.copy()
    out[:, :, 0] = c * X[:, :, 0] - s * X[:, :, 1]
    out[:, :, 1] = s * X[:, :, 0] + c * X[:, :, 1]
    return out


def _ruled(name: str, d: int, seed: int) -> Case:
    layer = layer_of(d, seed)
    rules = _RULES[name](size_of(d, seed))

    def box(X: Array) -> Array:
        return compute(layer, rules, X)

    bound = {} if seed % 4 else {"input_bound": (1.0, 10.0, 100.0)[seed % 3]}
    return Case(box, d, box, exact=False, options={**told(layer), **bound})


def _behind(d: int, seed: int) -> Case:
    """A rule or a pick of this file behind spoilt answers."""
    kinds = [kind for kind in answers.ANSWERS if kind != "exact"]
    kind = kinds[seed % len(kinds)]
    rng = generator(d, seed, 52)
    made = [partial(_ruled, name) for name in _RULES] + [partial(_picked, name) for name in PICKS]
    usual = seed - seed % 3 + 1 if seed % 3 == 2 else seed  # numbers
    case = made[int(rng.integers(len(made)))](d, usual)
    inner = unsoftmax.FunctionOracle(case.function, OracleSpec(width=d))
    shown = (lambda X: np.clip(case.function(X), -20.0, 20.0)) if kind == "clipped" else case.function
    return Case(answers.ANSWERS[kind](inner, seed), d, shown, exact=False, labels="labels" in kind)


def _asked_again(d: int, seed: int) -> Case:
    """A sequence whose last row was asked before is answered a little otherwise."""
    layer, size = layer_of(d, seed), size_of(d, seed)
    seen: set[bytes] = set()

    def box(X: Array) -> Array:
        values = np.array(layer(X))
        for i, x in enumerate(X):
            key = x.tobytes()
            if key in seen:
                values[i] *= 1.0 + size
            seen.add(key)
        return values

    def function(X: Array) -> Array:
        return layer(X)

    return Case(box, d, function, steady=False, exact=False, options=told(layer))


def _first_row_seen(d: int, seed: int) -> Case:
    """Another temperature for sequences that begin with a row that was seen before."""
    layer, size = layer_of(d, seed), size_of(d, seed)
    seen: set[bytes] = set()
    other = Rules(scores=lambda a, X: a * (1.0 + size))

    def box(X: Array) -> Array:
        known = np.array([x[0].tobytes() in seen for x in X])
        seen.update(x[0].tobytes() for x in X)
        values, others = compute(layer, Rules(), X), compute(layer, other, X)
        return np.where(column(known, values), others, values)

    return Case(box, d, lambda X: compute(layer, Rules(), X), steady=False, exact=False, options=told(layer))


KINDS: dict[str, Maker] = {
    **{f"corner: {name}": partial(_picked, name) for name in PICKS},
    **{f"corner: rule, {name}": partial(_ruled, name) for name in _RULES},
    "corner: behind errors": _behind,
    "corner: one output": _column_off,
    "corner: asked again": _asked_again,
    "corner: first row seen": _first_row_seen,
}
SLOW: frozenset[str] = frozenset(KINDS)
