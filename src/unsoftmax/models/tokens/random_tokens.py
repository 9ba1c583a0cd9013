"""Seeded random models over token ids, for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.tokens.token_head import TokenHead, TokenPositions
from unsoftmax.models.tokens.token_heads import TokenHeads

__all__ = ["random_token_heads"]


def random_token_heads(
    vocabulary: int,
    r: int = 8,
    *,
    heads: int = 1,
    seed: int = 0,
    scale: float = 1.0,
    outputs: int | None = None,
    longest: int | None = None,
) -> TokenHeads:
    """Gaussian keys, queries and values of every token, with a query bias; scores deviate by `scale`.

    longest: with learned positions for sequences up to this length, half as large as the tokens' own part.

    >>> random_token_heads(20, 3, seed=1).parameters
    128
    """
    if vocabulary < 1 or heads < 1 or r < 0 or (longest is not None and longest < 2):
        raise UsageError(
            f"a token model needs V >= 1, heads >= 1, r >= 0 and longest >= 2, not {vocabulary}, {heads}, "
            f"{r}, {longest}"
        )
    rng = np.random.default_rng([seed, heads])
    size = scale / np.sqrt(max(r, 1))
    shape = () if outputs is None else (outputs,)
    parts = []
    for _ in range(heads):
        keys, queries = rng.standard_normal((vocabulary, r)), size * rng.standard_normal((vocabulary, r))
        values = 0.3 + rng.standard_normal((vocabulary, *shape))
        positions = None
        if longest is not None:
            places = 0.5 * rng.standard_normal((2, longest, r))
            positions = TokenPositions(
                places[0], size * places[1], 0.5 * rng.standard_normal((longest, *shape))
            )
        parts.append(TokenHead(keys, queries + 0.5 * size * rng.standard_normal(r), values, positions))
    return TokenHeads(parts)
