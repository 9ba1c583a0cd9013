"""Members of unusual shape for the honesty fuzzer, whose bounds must cover: heads that are nearly alike,
opposite, multiples of each other, faint, of uneven rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_corners import size_of
from tests.cases.honesty_twists import generator
from unsoftmax import Model, MultiHead, SingleHead

__all__ = ["KINDS", "SLOW"]


def _member(model: Model, exact: bool, **options: object) -> Case:
    outputs = {} if model.outputs is None else {"outputs": model.outputs}
    return Case(
        lambda X: model(X), model.width, model, model, exact, options={**outputs, **options}, member=True
    )


def _uneven_head(d: int, rng: np.random.Generator) -> SingleHead:
    rows = 10.0 ** rng.uniform(-3.0, 1.0, d)
    return SingleHead(
        rows[:, None] * rng.standard_normal((d, d)),
        10.0 ** rng.uniform(-3, 1, d) * rng.choice([-1.0, 1.0], d),
    )


def _nearly_equal(d: int, rng: np.random.Generator) -> MultiHead:
    W = rng.standard_normal((d, d)) / np.sqrt(d)
    E = rng.standard_normal((d, d)) / np.sqrt(d)
    return MultiHead(
        [
            SingleHead(W, rng.standard_normal(d)),
            SingleHead(W + 10.0 ** -rng.uniform(0.5, 4) * E, rng.standard_normal(d)),
        ]
    )


def _opposite(d: int, rng: np.random.Generator) -> MultiHead:
    W, v = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)
    return MultiHead(
        [SingleHead(W, v), SingleHead(-W, v + 10.0 ** -rng.uniform(0, 4) * rng.standard_normal(d))]
    )


def _skewed_and_plain(d: int, rng: np.random.Generator) -> MultiHead:
    A = rng.standard_normal((d, d)) / np.sqrt(d)
    return MultiHead(
        [SingleHead(A - A.T, rng.standard_normal(d)), SingleHead(A + A.T, rng.standard_normal(d))]
    )


def _multiples(d: int, rng: np.random.Generator) -> MultiHead:
    W = rng.standard_normal((d, d)) / np.sqrt(d)
    return MultiHead([SingleHead(t * W, rng.standard_normal(d)) for t in (1.0, 2.0)])


def _faint(d: int, rng: np.random.Generator) -> MultiHead:
    heads = unsoftmax.random_multi_head(d, 2, d, seed=int(rng.integers(1000))).heads
    return MultiHead([heads[0], SingleHead(heads[1].W, 10.0 ** -rng.uniform(1, 6) * heads[1].v)])


def _large_bias(d: int, rng: np.random.Generator) -> SingleHead:
    W = rng.standard_normal((d, d)) / np.sqrt(d)
    return SingleHead(
        W,
        rng.standard_normal(d),
        10.0 ** rng.uniform(-3, 3) * rng.standard_normal(d),
        float(10.0 ** rng.uniform(-3, 6)),
    )


def _identity(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(
        float(rng.choice([-1.0, 1.0])) * 10.0 ** rng.uniform(-2, 2) * np.eye(d), rng.standard_normal(d)
    )


def _nilpotent(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(
        np.triu(rng.standard_normal((d, d)), 1) if d > 1 else np.ones((1, 1)), rng.standard_normal(d)
    )


def _eigen_v(d: int, rng: np.random.Generator) -> SingleHead:
    """v is in the kernel of W."""
    v = rng.standard_normal(d)
    W = rng.standard_normal((d, d))
    if d > 1:
        W -= np.outer(W @ v, v) / (v @ v)
        W -= np.outer(v, v @ W) / (v @ v)
    return SingleHead(W, v)


_SHAPES: dict[str, Callable[[int, np.random.Generator], Model]] = {
    "uneven rows of W": _uneven_head,
    "nearly equal heads": _nearly_equal,
    "opposite heads": _opposite,
    "skewed and symmetric": _skewed_and_plain,
    "multiples of one W": _multiples,
    "a faint head": _faint,
    "a large query bias": _large_bias,
    "multiples of the identity": _identity,
    "nilpotent": _nilpotent,
    "v in the kernel": _eigen_v,
}


# what tells heads apart, or W beside a bias, may be below rounding
_CLOSE = (
    "nearly equal heads",
    "opposite heads",
    "a faint head",
    "a large query bias",
    "skewed and symmetric",
)


def _shape(name: str, d: int, seed: int) -> Case:
    model = _SHAPES[name](d, generator(d, seed, 53))
    bound = {} if seed % 3 else {"input_bound": (1.0, 10.0, 100.0)[seed % 3]}
    return _member(model, name not in _CLOSE and not bound, **bound)


def _shape_behind(d: int, seed: int) -> Case:
    rng = generator(d, seed, 54)
    kinds = [kind for kind in answers.ANSWERS if kind not in ("exact",)]
    kind = kinds[seed % len(kinds)]
    names = list(_SHAPES)
    model = _SHAPES[names[int(rng.integers(len(names)))]](d, rng)
    if "labels" in kind and isinstance(model, SingleHead):  # they show the direction of v alone
        model = SingleHead(
            model.matrix, model.v / np.linalg.norm(model.v), model.w0, model.c / np.linalg.norm(model.v)
        )
    shown: Function = (lambda X: np.clip(model(X), -20.0, 20.0)) if kind == "clipped" else model
    return Case(
        answers.ANSWERS[kind](unsoftmax.as_oracle(model), seed),
        d,
        shown,
        model,
        exact=False,
        labels="labels" in kind,
    )


def _per_output(d: int, seed: int) -> Case:
    """Every output has its own temperature: as many heads as outputs, nearly alike."""
    size, d = size_of(d, seed, 7.0), max(d, 2)
    head = unsoftmax.random_multi_head(d, 1, seed=seed, outputs=3).heads[0]
    heads = []
    for j in range(3):
        V = np.zeros_like(head.v)
        V[:, j] = head.v[:, j]
        heads.append(SingleHead((1.0 + size * j) * head.W, V))
    truth = MultiHead(heads)
    return Case(lambda X: truth(X), d, truth, truth, exact=False, options={"outputs": 3}, member=True)


KINDS: dict[str, Maker] = {
    **{f"shape: {name}": partial(_shape, name) for name in _SHAPES},
    "shape: behind errors": _shape_behind,
    "shape: a temperature per output": _per_output,
}
SLOW: frozenset[str] = frozenset(KINDS)
