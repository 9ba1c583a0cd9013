"""Boxes for the honesty fuzzer that compute attention by their own rules: other keys, other weights, other
values, other answers than the formula's. None is a member of a class, but for those said to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Maker
from unsoftmax import MultiHead, OracleSpec
from unsoftmax.arrays import Array

__all__ = ["KINDS", "SLOW", "Rules", "column", "compute", "generator", "layer_of", "norms", "told"]

_Scores = Callable[[Array, Array], Array]  # (scores, rows) -> scores
_Weights = Callable[[Array, Array], Array]
_Rows = Callable[[Array], Array]
_Answers = Callable[[Array, Array], Array]


def _as_is(values: Array, rows: Array | None = None) -> Array:
    return values


@dataclass(frozen=True)
class Rules:
    """What becomes of rows, of the scores, of the weights (before they are divided by their sum) and of the
    answers."""

    rows: _Rows = _as_is
    scores: _Scores = _as_is
    weights: _Weights = _as_is
    answers: _Answers = _as_is


def generator(d: int, seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng([seed, d, part, 97])


def layer_of(d: int, seed: int) -> MultiHead:
    """One head or two, numbers or vectors, with and without biases, in turns."""
    outputs = d if seed % 3 == 2 else None
    return unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=outputs, biases=seed % 5 == 0)


def compute(layer: MultiHead, rules: Rules, X: Array) -> Array:
    rows = rules.rows(X)
    total: Array = np.zeros(() if layer.outputs is None else layer.outputs)
    for head in layer.heads:
        asking = rows[:, -1] @ head.W.T + (0.0 if head.w0 is None else np.asarray(head.w0))
        scores = rules.scores(np.einsum("bnd,bd->bn", rows, asking), rows)
        weights = rules.weights(np.exp(scores - scores.max(axis=1, keepdims=True)), rows)
        weights = weights / weights.sum(axis=1, keepdims=True)
        total = total + np.einsum("bn,bnd->bd", weights, rows) @ head.v
    return rules.answers(np.asarray(total + layer.c), X)


def told(layer: MultiHead) -> dict[str, object]:
    return {} if layer.outputs is None else {"outputs": layer.outputs}


def _ruled(make: Callable[[float], Rules], d: int, seed: int) -> Case:
    """make: the rules, from a size between 1e-8 and a third."""
    layer = layer_of(d, seed)
    size = float(10.0 ** -generator(d, seed, 1).uniform(0.5, 8.0))
    rules = make(size)

    def box(X: Array) -> Array:
        return compute(layer, rules, X)

    return Case(box, d, box, exact=False, options=told(layer))


def _behind(kind: str, d: int, seed: int) -> Case:
    """One of the rules behind answers of this kind."""
    names = sorted(_RULES)
    layer = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, biases=seed % 3 == 0)
    rng = generator(d, seed, 8)
    rules = _RULES[names[int(rng.integers(len(names)))]](float(10.0 ** -rng.uniform(0.3, 6.0)))

    def function(X: Array) -> Array:
        return compute(layer, rules, X)

    inner = unsoftmax.FunctionOracle(function, OracleSpec(width=d))
    box = answers.ANSWERS[kind](inner, seed)
    shown = (lambda X: np.clip(function(X), -20.0, 20.0)) if kind == "clipped" else function
    return Case(box, d, shown, exact=False, labels="labels" in kind)


def _bounded(d: int, seed: int) -> Case:
    """One of the rules where rows may only be short."""
    rng = generator(d, seed, 9)
    names = sorted(_RULES)
    case = _ruled(_RULES[names[int(rng.integers(len(names)))]], d, seed)
    return replace(case, options={**case.options, "input_bound": (0.3, 1.0, 3.0, 30.0)[seed % 4]})


def norms(X: Array) -> Array:
    return np.asarray(np.linalg.norm(X, axis=2))


def _factor(rows: Array, size: float, where: Array) -> Array:
    return np.where(where, 1.0 + size, 1.0)


def _copies(X: Array) -> Array:
    """Which rows are copies of an earlier one, (B, N)."""
    same = (X[:, :, None] == X[:, None, :]).all(axis=3)
    return np.asarray(np.tril(same, -1).any(axis=2))


def _places(X: Array) -> Array:
    return np.broadcast_to(np.arange(X.shape[1]), X.shape[:2])


def _topped(k: int, weights: Array) -> Array:
    if weights.shape[1] <= k:
        return weights
    least = np.sort(weights, axis=1)[:, -k][:, None]
    return np.where(weights >= least, weights, 0.0)


def _by_norm_of_answer(answers: Array, X: Array, size: float) -> Array:
    return np.asarray(answers * (1.0 + size * np.tanh(np.abs(answers))))


def column(values: Array, answers: Array) -> Array:
    return values if answers.ndim == 1 else values[:, None]


def _where(size: float, picked: Callable[[Array], object]) -> Rules:
    """Another temperature for the sequences that are picked."""
    return Rules(scores=lambda s, X: s * (1.0 + size * np.asarray(picked(X), dtype=np.float64))[:, None])


def _longest_asks(rows: Array) -> Array:
    """The longest row comes last, from nine rows on."""
    if rows.shape[1] < 9:
        return rows
    order = np.argsort(norms(rows), axis=1, kind="stable")
    return np.take_along_axis(rows, order[:, :, None], axis=1)


def _sorted(X: Array) -> Array:
    return np.asarray((np.diff(X[:, :, 0], axis=1) >= 0).all(axis=1))


_RULES: dict[str, Callable[[float], Rules]] = {
    # which sequences
    "copies of rows": lambda s: _where(s, lambda X: _copies(X).any(axis=1)),
    "a row like the last": lambda s: _where(s, lambda X: (X[:, :-1] == X[:, -1:]).all(axis=2).any(axis=1)),
    "sorted rows": lambda s: _where(s, _sorted),
    "whole numbers": lambda s: _where(s, lambda X: (np.rint(X) == X).all(axis=2).any(axis=1)),
    "odd lengths beyond ten": lambda s: _where(
        s, lambda X: np.full(len(X), X.shape[1] > 10 and X.shape[1] % 2)
    ),
    "first row the longest": lambda s: _where(s, lambda X: norms(X).argmax(axis=1) == 0),
    "even norms": lambda s: _where(
        s, lambda X: norms(X).max(axis=1) < 1.5 * np.maximum(norms(X).min(axis=1), 1e-300)
    ),
    "a row of zeros": lambda s: _where(s, lambda X: (norms(X) == 0.0).any(axis=1)),
    "rows on one side": lambda s: _where(s, lambda X: (X[:, :, 0] > 0).all(axis=1)),
    "two rows apart": lambda s: _where(
        s, lambda X: np.einsum("bd,bd->b", X[:, 0] - X[:, -1], X[:, 0] - X[:, -1]) > X.shape[2]
    ),
    # which keys
    "copies count once": lambda s: Rules(weights=lambda w, X: w * np.where(_copies(X), 1.0 - s, 1.0)),
    "keys behind the fifth": lambda s: Rules(scores=lambda a, X: a * np.where(_places(X) >= 5, 1.0 + s, 1.0)),
    "places beyond eight": lambda s: Rules(scores=lambda a, X: a + s * _places(X) * (X.shape[1] > 8)),
    "the last row counts more": lambda s: Rules(
        weights=lambda w, X: w * np.where(_places(X) == X.shape[1] - 1, 1.0 + s, 1.0)
    ),
    "a window of sixteen": lambda s: Rules(
        weights=lambda w, X: w * np.where(_places(X) >= X.shape[1] - 16, 1.0, s)
    ),
    "the eight largest": lambda s: Rules(weights=lambda w, X: _topped(8, w)),
    "long keys": lambda s: Rules(scores=lambda a, X: a - s * norms(X) ** 2),
    "faint weights are gone": lambda s: Rules(weights=lambda w, X: np.where(w > s, w, 0.0)),
    # how scores become weights
    "scores bent": lambda s: Rules(scores=lambda a, X: np.tanh(s * a) / s),
    "temperature by norm": lambda s: Rules(scores=lambda a, X: a * (1.0 + s * np.log1p(norms(X)[:, -1:]))),
    "temperature by the mean": lambda s: Rules(
        scores=lambda a, X: a * (1.0 + s * np.tanh(X.mean(axis=(1, 2))))[:, None]
    ),
    "rough exponential": lambda s: Rules(
        weights=lambda w, X: w * (1.0 + s * np.sin(50.0 * np.log(w + 1e-300)))
    ),
    "short weights": lambda s: Rules(weights=lambda w, X: w.astype(np.float32).astype(np.float64)),
    "half weights": lambda s: Rules(weights=lambda w, X: w.astype(np.float16).astype(np.float64)),
    "short scores": lambda s: Rules(scores=lambda a, X: a.astype(np.float32).astype(np.float64)),
    "half scores": lambda s: Rules(
        scores=lambda a, X: np.clip(a, -6e4, 6e4).astype(np.float16).astype(np.float64)
    ),
    "a part for all": lambda s: Rules(weights=lambda w, X: w + s * w.mean(axis=1, keepdims=True)),
    "weights to a power": lambda s: Rules(
        weights=lambda w, X: w / w.sum(axis=1, keepdims=True) + s * (w / w.sum(axis=1, keepdims=True)) ** 2
    ),
    # rows
    "long rows are cut": lambda s: Rules(
        rows=lambda X: X * np.minimum(1.0, 3.0 / s**0.25 / np.maximum(norms(X), 1e-300))[:, :, None]
    ),
    "short rows are gone": lambda s: Rules(rows=lambda X: X * (norms(X) > s)[:, :, None]),
    "less the mean from four": lambda s: Rules(
        rows=lambda X: X - s * X.mean(axis=1, keepdims=True) * (X.shape[1] > 3)
    ),
    "short rows from thirty": lambda s: Rules(
        rows=lambda X: X.astype(np.float32).astype(np.float64) if X.shape[1] > 30 else X
    ),
    "the longest row asks": lambda s: Rules(rows=_longest_asks),
    "entries bent": lambda s: Rules(rows=lambda X: np.tanh(s * X) / s),
    # answers
    "answers bent": lambda s: Rules(answers=lambda y, X: _by_norm_of_answer(y, X, s)),
    "answers cut far out": lambda s: Rules(answers=lambda y, X: np.clip(y, -1.0 / s**0.5, 1.0 / s**0.5)),
    "a faint square": lambda s: Rules(answers=lambda y, X: y + s * column(X[:, -1, 0] ** 2, y)),
    "a faint product": lambda s: Rules(answers=lambda y, X: y + s * column(X[:, 0, 0] * X[:, -1, -1], y)),
    "the length": lambda s: Rules(answers=lambda y, X: y + s * np.log(X.shape[1])),
    "cut off": lambda s: Rules(answers=lambda y, X: np.trunc(y * 1e4) / 1e4),
    "rounded down": lambda s: Rules(answers=lambda y, X: np.floor(y * 1e4) / 1e4),
    "rounded up": lambda s: Rules(answers=lambda y, X: np.ceil(y / s) * s),
    "dead zone": lambda s: Rules(answers=lambda y, X: np.where(np.abs(y) < s, 0.0, y)),
    "significant digits": lambda s: Rules(answers=lambda y, X: _digits(y, 2 + int(-np.log10(s)))),
}


def _digits(values: Array, n: int) -> Array:
    with np.errstate(divide="ignore"):
        size = np.where(values == 0.0, 1.0, 10.0 ** np.floor(np.log10(np.abs(values))))
    return np.asarray(np.round(values / size, n) * size)


KINDS: dict[str, Maker] = {
    **{f"twist: {name}": partial(_ruled, make) for name, make in _RULES.items()},
    **{f"twist: behind {kind}": partial(_behind, kind) for kind in answers.ANSWERS if kind != "exact"},
    "twist: bounded rows": _bounded,
}
# half a second and more each
SLOW: frozenset[str] = frozenset(KINDS)
