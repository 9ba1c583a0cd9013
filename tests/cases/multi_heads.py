"""The shared table of several heads, from plain to nasty. Each kind is made from (d, seed)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax import MultiHead, SingleHead, random_multi_head

Array = NDArray[np.float64]


def gaussian(rng: np.random.Generator, d: int, r: int | None = None) -> Array:
    if r is None:
        return np.asarray(rng.standard_normal((d, d)) / np.sqrt(d))
    return np.asarray(rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / np.sqrt(d * r))


def full_rank(d: int, seed: int) -> MultiHead:
    return random_multi_head(d, 3, d, seed=seed)


def low_rank(d: int, seed: int) -> MultiHead:
    return random_multi_head(d, 4, seed=seed)


def biases_and_constant(d: int, seed: int) -> MultiHead:
    return random_multi_head(d, 3, seed=seed, biases=True)


def bias_outside_range_no_constant(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead(
        [
            SingleHead(gaussian(rng, d, 2), rng.standard_normal(d), rng.standard_normal(d) / np.sqrt(d))
            for _ in range(3)
        ]
    )


def orthogonal_subspaces(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    r = d // 3
    parts = [basis[:, h * r : (h + 1) * r] for h in range(3)]
    return MultiHead(
        [SingleHead((U @ rng.standard_normal((r, r)), U), U @ rng.standard_normal(r)) for U in parts]
    )


def shared_keys(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((d, 3)) / np.sqrt(3)
    return MultiHead(
        [
            SingleHead((keys, rng.standard_normal((d, 3)) / np.sqrt(d)), rng.standard_normal(d))
            for _ in range(3)
        ]
    )


def parallel_values(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(d)
    return MultiHead([SingleHead(gaussian(rng, d), factor * v) for factor in (1.0, -0.5, 2.0)])


def cancelling_values(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(d)
    return MultiHead([SingleHead(gaussian(rng, d), factor * v) for factor in (1.0, -1.0)])


def one_loud(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead(
        [SingleHead(gaussian(rng, d), factor * rng.standard_normal(d)) for factor in (40.0, 1.0, 1.0)]
    )


def equal_and_dead(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    W = gaussian(rng, d)
    values = rng.standard_normal((4, d))
    values[2] = 0.0
    return MultiHead(
        [SingleHead(w, v) for w, v in zip((W, W, gaussian(rng, d), gaussian(rng, d)), values, strict=True)]
    )


def close(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    W, E = gaussian(rng, d), rng.standard_normal((d, d))
    near = W + 1e-4 * np.linalg.norm(W) / np.linalg.norm(E) * E
    return MultiHead([SingleHead(w, rng.standard_normal(d)) for w in (W, near, gaussian(rng, d))])


def strong_scores(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead(
        [SingleHead(80.0 / np.sqrt(d) * gaussian(rng, d), rng.standard_normal(d)) for _ in range(3)]
    )


def weak_scores(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead([SingleHead(1e-6 * gaussian(rng, d), 1e6 * rng.standard_normal(d)) for _ in range(3)])


def one_averages(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead(
        [SingleHead(factor * gaussian(rng, d), rng.standard_normal(d)) for factor in (0.0, 1.0, 1.0)]
    )


def more_heads_than_columns(d: int, seed: int) -> MultiHead:
    rng = np.random.default_rng(seed)
    return MultiHead([SingleHead(gaussian(rng, d), rng.standard_normal(d)) for _ in range(d + 3)])


KINDS: dict[str, Callable[[int, int], MultiHead]] = {
    kind.__name__: kind
    for kind in (
        full_rank,
        low_rank,
        biases_and_constant,
        bias_outside_range_no_constant,
        orthogonal_subspaces,
        shared_keys,
        parallel_values,
        cancelling_values,
        one_loud,
        equal_and_dead,
        close,
        strong_scores,
        weak_scores,
        one_averages,
        more_heads_than_columns,
    )
}
