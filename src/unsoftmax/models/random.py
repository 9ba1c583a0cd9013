"""Seeded random models, for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.single_head import SingleHead

__all__ = ["random_single_head"]


def random_single_head(d: int, r: int | None = None, *, seed: int = 0, scale: float = 1.0, biases: bool = False) -> SingleHead:
    """A Gaussian head of width d and rank r (None: full), with entries of W about scale/sqrt(d).

    >>> random_single_head(8, 2, seed=1).rank
    2
    """
    if d < 1 or (r is not None and not 0 <= r <= d):
        raise UsageError(f"a head needs d >= 1 and 0 <= r <= d, not d={d}, r={r}")
    rng = np.random.default_rng(seed)
    if r is None or r == d:
        W: object = scale * rng.standard_normal((d, d)) / np.sqrt(d)
    else:
        W = (scale * rng.standard_normal((d, r)) / np.sqrt(max(r, 1)), rng.standard_normal((d, r)) / np.sqrt(d))
    v = rng.standard_normal(d)
    if not biases:
        return SingleHead(W, v)
    return SingleHead(W, v, scale * rng.standard_normal(d) / np.sqrt(d), float(rng.standard_normal()))
