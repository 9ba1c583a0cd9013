"""Seeded random networks and Transformers, for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.random import random_single_head
from unsoftmax.models.transformer import Transformer

__all__ = ["random_relu_network", "random_transformer"]


def random_relu_network(d: int, m: int, *, seed: int = 0, biases: bool = False) -> ReluNetwork:
    """m Gaussian neurons on R^d; with biases, hyperplanes about 1 away from the origin and an output bias.

    >>> random_relu_network(4, 6, seed=1, biases=True).folds.count
    6
    """
    if d < 1 or m < 0:
        raise UsageError(f"a network needs d >= 1 and m >= 0, not d={d}, m={m}")
    rng = np.random.default_rng(seed)
    A, u = rng.standard_normal((m, d)), rng.standard_normal(m)
    if not biases:
        return ReluNetwork(A, u)
    return ReluNetwork(A, u, rng.standard_normal(m) * np.linalg.norm(A, axis=1), float(rng.standard_normal()))


def random_transformer(
    d: int,
    m: int,
    r: int | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    biases: bool = False,
    residual: float = 0.0,
) -> Transformer:
    """Gaussian attention of rank r (None: full, entries of W about scale/sqrt(d)) before m Gaussian neurons.

    >>> random_transformer(4, 6, 2, seed=1).ranks
    [2]
    """
    attention = random_single_head(d, r, seed=seed, scale=scale)
    return Transformer(
        attention.matrix, random_relu_network(d, m, seed=seed + 1, biases=biases), residual=residual
    )
