"""Proposition 7.1: parameters of several heads are not unique. A pair of them with one function."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.random import random_multi_head
from unsoftmax.models.single_head import SingleHead

__all__ = ["witness_pair"]


def witness_pair(
    d: int, heads: int = 2, r: int | None = None, *, seed: int = 0, biases: bool = False
) -> tuple[MultiHead, MultiHead]:
    """Two models with different parameters and one function: some of their heads share W, so that only the
    sum of the v is visible.

    The second model splits the shared v differently, permutes its heads and carries a head that says nothing.

    >>> f, g = witness_pair(4, seed=1)
    >>> X = np.random.default_rng(0).standard_normal((5, 3, 4))
    >>> bool(np.allclose(f(X), g(X), rtol=1e-12)), len(f.heads), len(g.heads), f.distance(g) < 1e-12
    (True, 2, 3, True)
    """
    if heads < 2:
        raise UsageError(f"a witness pair needs at least 2 heads, not {heads}")
    base = random_multi_head(d, heads, r, seed=seed, biases=biases)
    rng = np.random.default_rng([seed, 71])
    shared = base.heads[0]
    sister = SingleHead(shared.matrix, rng.standard_normal(d), shared.w0)
    first = MultiHead([shared, sister, *base.heads[2:]], base.c)
    moved = rng.standard_normal(d)
    without_effect = SingleHead(rng.standard_normal((d, d)), np.zeros(d))
    others = [base.heads[2 + i] for i in rng.permutation(heads - 2)]
    second = MultiHead(
        [
            *others,
            SingleHead(shared.matrix, sister.v - moved, shared.w0),
            without_effect,
            SingleHead(shared.matrix, shared.v + moved, shared.w0),
        ],
        base.c,
    )
    return first, second
