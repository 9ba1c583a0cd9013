"""Seeded random models, for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import SingleHead

__all__ = ["random_multi_head", "random_single_head"]


def random_single_head(
    d: int, r: int | None = None, *, seed: int = 0, scale: float = 1.0, biases: bool = False
) -> SingleHead:
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
        W = (
            scale * rng.standard_normal((d, r)) / np.sqrt(max(r, 1)),
            rng.standard_normal((d, r)) / np.sqrt(d),
        )
    v = rng.standard_normal(d)
    if not biases:
        return SingleHead(W, v)
    return SingleHead(W, v, scale * rng.standard_normal(d) / np.sqrt(d), float(rng.standard_normal()))


def random_multi_head(
    d: int,
    heads: int,
    r: int | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    biases: bool = False,
    outputs: int | None = None,
) -> MultiHead:
    """Gaussian heads of width d and rank r (None: d // heads as in usual layers, at least 1), biases in the
    range of W, and a constant.

    With `outputs` the answers are vectors, and every head's values have rank at most r, as in usual layers.

    >>> random_multi_head(8, 4, seed=1).ranks
    [2, 2, 2, 2]
    """
    if heads < 1:
        raise UsageError(f"a multi-head model needs at least 1 head, not {heads}")
    rank = max(1, d // heads) if r is None else r
    rng = np.random.default_rng([seed, heads])
    parts = []
    for _ in range(heads):
        head = random_single_head(d, rank, seed=int(rng.integers(2**31)), scale=scale)
        v = (
            head.v
            if outputs is None
            else rng.standard_normal((d, min(rank, outputs)))
            @ rng.standard_normal((min(rank, outputs), outputs))
            / np.sqrt(rank)
        )
        w0 = head.W @ rng.standard_normal(d) if biases else None
        parts.append(SingleHead(head.matrix, v, w0))
    shape = () if outputs is None else (outputs,)
    return MultiHead(parts, rng.standard_normal(shape) if biases else 0.0)
