"""The shared table of single heads, from plain to nasty. Each kind is made from (d, seed)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax import SingleHead

Array = NDArray[np.float64]


def _gaussian(d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)


def _with_spectrum(values: Array, d: int, rng: np.random.Generator) -> Array:
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0][:, : len(values)] for _ in range(2))
    return np.asarray((left * values) @ right.T)


def plain(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(*_gaussian(d, rng))


def saturating(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(60 * W, v)


def one_hot_v(d: int, rng: np.random.Generator) -> SingleHead:
    W, _ = _gaussian(d, rng)
    return SingleHead(W, np.eye(d)[rng.integers(d)])


def tiny_v(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(W, 1e-7 * v)


def antisymmetric(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(W - W.T, v)


def ill_conditioned(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(_with_spectrum(np.logspace(0, -6, d), d, rng), rng.standard_normal(d))


def zero_W(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(np.zeros((d, d)), rng.standard_normal(d))


def biases(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(W, v, rng.standard_normal(d), float(rng.standard_normal()))


def query_bias_only(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(W, v, rng.standard_normal(d))


def constant_only(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(W, v, c=1e3)


def zero_W_with_bias(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(np.zeros((d, d)), rng.standard_normal(d), rng.standard_normal(d), 2.0)


def large_scales(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(1e6 * W, 1e6 * v)


def small_scales(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    return SingleHead(1e-6 * W, 1e-6 * v)


def permutation(d: int, rng: np.random.Generator) -> SingleHead:
    return SingleHead(np.eye(d)[rng.permutation(d)], rng.standard_normal(d))


def one_large_entry(d: int, rng: np.random.Generator) -> SingleHead:
    W, v = _gaussian(d, rng)
    W *= 1e-2
    W[rng.integers(d), rng.integers(d)] = 100.0
    return SingleHead(W, v)


REQUIRED: dict[str, Callable[[int, np.random.Generator], SingleHead]] = {
    case.__name__: case
    for case in (plain, saturating, one_hot_v, tiny_v, antisymmetric, ill_conditioned, zero_W, biases)
}
MORE: dict[str, Callable[[int, np.random.Generator], SingleHead]] = {
    case.__name__: case
    for case in (
        query_bias_only,
        constant_only,
        zero_W_with_bias,
        large_scales,
        small_scales,
        permutation,
        one_large_entry,
    )
}
ALL = REQUIRED | MORE


def make(kind: str, d: int, seed: int) -> SingleHead:
    """The head of a kind; the seed covers kind and width, so that no two cases share their randomness."""
    return ALL[kind](d, np.random.default_rng([seed, d, sorted(ALL).index(kind)]))


def low_rank(d: int, r: int, seed: int, *, decades: float = 0.0, v: str = "random") -> SingleHead:
    """Rank r with singular values decaying over `decades`; v random, orthogonal to the range of W, or inside
    it."""
    rng = np.random.default_rng([seed, d, r])
    left, right = (np.linalg.qr(rng.standard_normal((d, r)))[0] for _ in range(2))
    readout = rng.standard_normal(d)
    if v == "orthogonal":
        readout -= left @ (left.T @ readout)
    elif v == "inside":
        readout = left @ (left.T @ readout)
    return SingleHead((left * np.logspace(0, -decades, r) * np.sqrt(d), right), readout)
