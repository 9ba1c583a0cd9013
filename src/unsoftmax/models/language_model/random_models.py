"""Seeded random decoders of the shapes of Llama and GPT-2, for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.model import LanguageModel
from unsoftmax.models.language_model.parts import (
    Attention,
    DecoderLayer,
    FeedForward,
    GatedNetwork,
    LearnedPositions,
    Rotary,
)
from unsoftmax.models.parts import LayerNorm, RMSNorm

__all__ = ["random_gpt2", "random_language_model"]


class _Draw:
    """Gaussian matrices with entries of size 1/√d, and gains near one."""

    def __init__(self, d: int, seed: int) -> None:
        self.d, self.rng = d, np.random.default_rng(seed)

    def matrix(self, *shape: int) -> Array:
        return np.asarray(self.rng.standard_normal(shape) / np.sqrt(self.d))

    def gain(self) -> Array:
        return np.asarray(1.0 + 0.2 * self.rng.standard_normal(self.d))

    def projections(self, heads: int, groups: int) -> tuple[Array, Array, Array, Array]:
        """Queries, keys, values and output of an attention part."""
        d, width = self.d, self.d // heads
        query, key, value = (self.matrix(count * width, d) for count in (heads, groups, groups))
        return query, key, value, self.matrix(d, heads * width)

    def layer_norm(self) -> LayerNorm:
        return LayerNorm(self.gain(), self.matrix(self.d), eps=1e-5)


def random_language_model(  # noqa: PLR0913 - an entry point
    d: int,
    m: int,
    *,
    heads: int = 2,
    groups: int | None = None,
    vocabulary: int | None = None,
    layers: int = 1,
    tied: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """A decoder of Llama's shape: RMSNorm, rotary positions, shared keys, SwiGLU. tied: the embedding is the
    unembedding, not one of its own.

    >>> random_language_model(16, 24, heads=4, groups=2).layers[0].attention.key.shape
    (8, 16)
    """
    draw, shared = _Draw(d, seed), heads if groups is None else groups
    tokens = d + d // 2 if vocabulary is None else vocabulary
    stack = []
    for _ in range(layers):
        attention = Attention(*draw.projections(heads, shared), heads, shared)
        network = GatedNetwork(draw.matrix(m, d), draw.matrix(m, d), draw.matrix(d, m))
        stack.append(
            DecoderLayer(RMSNorm(draw.gain(), eps=1e-6), attention, RMSNorm(draw.gain(), eps=1e-6), network)
        )
    final_norm, unembedding = RMSNorm(draw.gain(), eps=1e-6), draw.matrix(tokens, d)
    embedding = unembedding if tied else draw.matrix(tokens, d)
    return LanguageModel(stack, final_norm, unembedding, Rotary(), embedding)


def random_gpt2(  # noqa: PLR0913 - an entry point
    d: int,
    m: int,
    *,
    heads: int = 2,
    vocabulary: int | None = None,
    layers: int = 1,
    tied: bool = True,
    seed: int = 0,
    length: int = 64,
) -> LanguageModel:
    """A decoder of GPT-2's shape: LayerNorm, learned positions, biases, GELU. tied: the embedding is the
    unembedding, not one of its own.

    >>> random_gpt2(8, 16).max_length
    64
    """
    draw, width, tokens = _Draw(d, seed), d // heads, d + d // 2 if vocabulary is None else vocabulary
    stack = []
    for _ in range(layers):
        attention = Attention(
            *draw.projections(heads, heads),
            heads,
            heads,
            query_bias=draw.matrix(heads * width),
            key_bias=draw.matrix(heads * width),
            value_bias=draw.matrix(heads * width),
            output_bias=draw.matrix(d),
        )
        network = FeedForward(draw.matrix(m, d), draw.matrix(m), draw.matrix(d, m), draw.matrix(d))
        stack.append(DecoderLayer(draw.layer_norm(), attention, draw.layer_norm(), network))
    unembedding = draw.matrix(tokens, d)
    final_norm, positions = draw.layer_norm(), LearnedPositions(draw.matrix(length, d))
    embedding = unembedding if tied else draw.matrix(tokens, d)
    return LanguageModel(stack, final_norm, unembedding, positions, embedding)
