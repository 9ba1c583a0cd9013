"""Networks that are hard in one way each: coinciding, cancelling, dead, degenerate, badly scaled. Shared by
tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax import ReluNetwork
from unsoftmax.arrays import Array

Maker = Callable[[int, int, np.random.Generator, bool], ReluNetwork]


def _parts(d: int, m: int, rng: np.random.Generator, biased: bool) -> tuple[Array, Array, Array]:
    A, u = rng.standard_normal((m, d)), rng.standard_normal(m)
    return A, u, rng.standard_normal(m) * np.linalg.norm(A, axis=1) * float(biased)


def _network(A: Array, u: Array, b: Array, biased: bool, c: float = 0.0) -> ReluNetwork:
    return ReluNetwork(A, u, b, c) if biased else ReluNetwork(A, u)


def gaussian(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    return _network(*_parts(d, m, rng, biased), biased, float(rng.standard_normal()))


def parallel(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    k = max(1, m // 3)
    return _network(
        np.vstack([A, 2.0 * A[:k]]),
        np.concatenate([u, rng.standard_normal(k)]),
        np.concatenate([b, b[:k] + biased]),
        biased,
    )


def duplicate(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    k = max(1, m // 3)
    return _network(
        np.vstack([A, A[:k]]), np.concatenate([u, rng.standard_normal(k)]), np.concatenate([b, b[:k]]), biased
    )


def opposite(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    k = max(1, m // 3)
    return _network(
        np.vstack([A, -A[:k]]),
        np.concatenate([u, rng.standard_normal(k)]),
        np.concatenate([b, -b[:k]]),
        biased,
    )


def cancelling(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, max(m, 2), rng, biased)
    k = max(1, m // 3)
    return _network(np.vstack([A, A[:k]]), np.concatenate([u, -u[:k]]), np.concatenate([b, b[:k]]), biased)


def cancelling_opposite(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    k = max(1, m // 3)
    return _network(np.vstack([A, -A[:k]]), np.concatenate([u, -u[:k]]), np.concatenate([b, -b[:k]]), biased)


def no_linear_part(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    """Aᵀu = 0: the paper's antisymmetric pair sees nothing."""
    A, u, b = _parts(d, max(m, 3), rng, biased)
    return _network(A - np.outer(u, u @ A) / (u @ u), u, b, biased)


def dead_neuron(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    u[0], A[-1] = 0.0, 0.0
    return _network(A, u, b, biased)


def rank_one(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    _, u, b = _parts(d, m, rng, biased)
    return _network(np.outer(rng.standard_normal(m), rng.standard_normal(d)), u, b, biased)


def low_rank(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    _, u, b = _parts(d, m, rng, biased)
    return _network(rng.standard_normal((m, 2)) @ rng.standard_normal((2, d)), u, b, biased)


def unit_rows(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    _, u, b = _parts(d, m, rng, biased)
    return _network(np.eye(d)[rng.integers(0, d, m)], u, b, biased)


def uneven_rows(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
    A, u, b = _parts(d, m, rng, biased)
    return _network(A * 10.0 ** rng.uniform(-2, 2, (m, 1)), u, b, biased)


def scaled(inputs: float, outputs: float) -> Maker:
    """Kinks `inputs` away from the origin, answers of size `outputs`."""

    def make(d: int, m: int, rng: np.random.Generator, biased: bool) -> ReluNetwork:
        A, u, b = _parts(d, m, rng, biased)
        return _network(A / inputs, outputs * u, b, biased, outputs)

    return make


HARD: dict[str, Maker] = {
    make.__name__.replace("_", " "): make
    for make in (
        parallel, duplicate, opposite, cancelling, cancelling_opposite, no_linear_part, dead_neuron,
        rank_one, low_rank, unit_rows, uneven_rows,
    )
} | {
    f"inputs {inputs:g}, answers {outputs:g}": scaled(inputs, outputs)
    for inputs, outputs in (
        (1e-6, 1.0), (1e-3, 1.0), (1e3, 1.0), (1e6, 1.0), (1.0, 1e-6), (1.0, 1e6), (1e6, 1e-6), (1e-6, 1e6)
    )
}  # fmt: skip


def with_bump(d: int, m: int, width: float, rng: np.random.Generator) -> ReluNetwork:
    """A Gaussian network and three parallel neurons that cancel outside a slab of this width, about 1 from
    the origin."""
    base = gaussian(d, m, rng, True)
    a = rng.standard_normal(d)
    a /= np.linalg.norm(a)
    offsets = -float(rng.standard_normal()) - np.array([0.0, width / 2, width])
    height = float(rng.standard_normal()) / width
    assert base.b is not None
    return ReluNetwork(
        np.vstack([base.A, a, a, a]),
        np.concatenate([base.u, height * np.array([1.0, -2.0, 1.0])]),
        np.concatenate([base.b, offsets]),
        base.c,
    )
