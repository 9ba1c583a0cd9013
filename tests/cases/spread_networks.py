"""Networks whose neurons differ by orders of magnitude: in row norms, outputs, biases or all of them.
Shared by tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax import ReluNetwork, Transformer, random_single_head
from unsoftmax.arrays import Array

PARTS = ("rows", "outputs", "biases")


def spread_network(
    d: int,
    m: int,
    decades: float,
    rng: np.random.Generator,
    parts: tuple[str, ...] = PARTS,
    biased: bool = True,
) -> ReluNetwork:
    """Row norms, outputs and biases of random sign; those in `parts` each log-uniform over so many decades
    around 1, the others Gaussian."""

    def sizes(part: str) -> Array:
        usual = rng.standard_normal(m)
        return np.asarray(
            np.sign(usual) * 10.0 ** rng.uniform(-decades / 2, decades / 2, m) if part in parts else usual
        )

    A = rng.standard_normal((m, d))
    if "rows" in parts:
        A *= np.abs(sizes("rows") / np.linalg.norm(A, axis=1))[:, None]
    u, b = sizes("outputs"), sizes("biases")
    return ReluNetwork(A, u, b, float(rng.standard_normal())) if biased else ReluNetwork(A, u)


def spread_transformer(
    d: int, m: int, decades: float, rng: np.random.Generator, biased: bool = True
) -> Transformer:
    """Gaussian attention before a network whose row norms, outputs and biases are all spread."""
    attention = random_single_head(d, seed=int(rng.integers(2**31)))
    return Transformer(attention.W, spread_network(d, m, decades, rng, biased=biased))
