"""Decoder-only language models, any depth: vectors as a prompt in, log-probabilities of the next token
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.base import as_batch, check_finite
from unsoftmax.models.files.layered import LayeredModel
from unsoftmax.models.language_model.canonical import (
    all_layer_norms,
    canonical_layer,
    canonical_positions,
    canonical_unembedding,
    is_rotary,
)
from unsoftmax.models.language_model.distance import layer_distance, relative
from unsoftmax.models.language_model.files import (
    check_widths,
    layer_from,
    norm_from,
    positions_from,
    to_tensors,
)
from unsoftmax.models.language_model.forward import decode, log_softmax
from unsoftmax.models.language_model.parts import (
    DecoderLayer,
    GatedNetwork,
    LearnedPositions,
    Positions,
    Rotary,
)
from unsoftmax.models.parts import Norm, RMSNorm

__all__ = ["LanguageModel"]

_NUMBERS_AT_A_TIME = 1 << 22  # 32 MB of scores and hidden units while a large batch is answered


class LanguageModel(LayeredModel):
    """A pre-norm decoder: rows (B, N, d) to log-probabilities (B, V) of the token after the last row.

    layers: `DecoderLayer`s. final_norm, unembedding (V, d): logits are unembedding·final_norm(row).
    positions: `Rotary`, `LearnedPositions` or None. embedding (V, d): rows of the tokens, for `embed`; the
    function of rows does not depend on it.

    >>> from unsoftmax.models.language_model import random_language_model
    >>> model = random_language_model(8, 12, heads=2, vocabulary=11, layers=2, seed=1)
    >>> model(np.ones((3, 2, 8))).shape, len(model.layers)
    ((3, 11), 2)
    """

    family: ClassVar[str] = "language-model"

    def __init__(
        self,
        layers: Sequence[DecoderLayer],
        final_norm: Norm,
        unembedding: object,
        positions: Positions | None = None,
        embedding: object = None,
    ) -> None:
        self.layers = tuple(layers)
        self.final_norm = final_norm
        self.unembedding: Array = np.array(unembedding, dtype=np.float64)
        self.positions = positions
        self.embedding: Array | None = None if embedding is None else np.array(embedding, dtype=np.float64)
        self._check()

    def _check(self) -> None:
        d = self.final_norm.width
        if self.unembedding.ndim != 2 or self.unembedding.shape[1] != d or len(self.unembedding) < 2:
            raise UsageError(
                f"unembedding must be (V, {d}) with at least 2 tokens, not {self.unembedding.shape}"
            )
        check_finite(unembedding=self.unembedding)
        if self.embedding is not None and self.embedding.shape != self.unembedding.shape:
            raise UsageError(f"embedding must be {self.unembedding.shape}, not {self.embedding.shape}")
        for number, layer in enumerate(self.layers):
            if layer.attention.width != d:
                raise UsageError(f"layer {number} has width {layer.attention.width}, the final norm {d}")
            if isinstance(self.positions, Rotary) and layer.attention.head_width % 2:
                raise UsageError(f"rotary positions need an even d_h, not {layer.attention.head_width}")
        if isinstance(self.positions, LearnedPositions) and self.positions.table.shape[1] != d:
            raise UsageError(
                f"the table of positions must have {d} columns, not {self.positions.table.shape[1]}"
            )
        if any(isinstance(norm, RMSNorm) and norm.bias is not None for norm in self.norms):
            raise UsageError("an RMSNorm with a bias is not supported; pass bias=None")

    @property
    def norms(self) -> list[Norm]:
        """Those of all layers, in order, and the final one."""
        return [norm for layer in self.layers for norm in (layer.attention_norm, layer.network_norm)] + [
            self.final_norm
        ]

    @property
    def width(self) -> int:
        return self.final_norm.width

    @property
    def outputs(self) -> int:
        """Tokens of the vocabulary."""
        return len(self.unembedding)

    @property
    def ranks(self) -> list[int]:
        return [layer.attention.head_width for layer in self.layers for _ in range(layer.attention.heads)]

    @property
    def max_length(self) -> int | None:
        """The longest prompt, where positions are learned."""
        return len(self.positions.table) if isinstance(self.positions, LearnedPositions) else None

    @cached_property
    def parameters(self) -> int:
        """Degrees of freedom of the function, eps and the base of rotary positions not counted."""
        d, rotary = self.width, is_rotary(self.positions)
        seen = d - 1 if self._mean_lost else d
        count = (self.outputs - 1) * d
        if isinstance(self.positions, LearnedPositions):
            count += len(self.positions.table) * seen
        for layer in self.layers:
            part, network = layer.attention, layer.network
            wide, narrow, width = len(part.query), len(part.key), part.head_width
            read = seen + (part.query_bias is not None or layer.attention_norm.bias is not None)
            count += (
                wide * read
                + narrow * (read if rotary else seen)
                - part.groups * (width if rotary else width * width)
            )
            count += narrow * seen + wide * seen - part.groups * width * width
            count += 0 if part.output_bias is None and part.value_bias is None else seen
            m = network.neurons
            count += (3 * m * seen - m) if isinstance(network, GatedNetwork) else (2 * m * seen + m + seen)
        return count

    @property
    def _mean_lost(self) -> bool:
        return all_layer_norms(self.norms)

    def __call__(self, batch: Array, /) -> Array:
        X = as_batch(batch, self.width)
        if self.max_length is not None and X.shape[1] > self.max_length:
            raise UsageError(f"{X.shape[1]} rows, but there are positions for {self.max_length} only")
        return np.concatenate(
            [
                self._answer(X[i : i + self._step(X.shape[1])])
                for i in range(0, len(X), self._step(X.shape[1]))
            ]
        )

    def _step(self, length: int) -> int:
        widest = max(
            [
                self.width,
                *(layer.network.neurons for layer in self.layers),
                *(layer.attention.heads * length for layer in self.layers),
            ]
        )
        return max(1, _NUMBERS_AT_A_TIME // (length * widest + self.outputs))

    def _answer(self, X: Array) -> Array:
        rows = X + self.positions.table[: X.shape[1]] if isinstance(self.positions, LearnedPositions) else X
        return log_softmax(self.final_norm(decode(self.layers, rows, self.positions)) @ self.unembedding.T)

    def embed(self, tokens: object) -> Array:
        """Token ids (B, N) as rows (B, N, d)."""
        if self.embedding is None:
            raise UsageError("this model has no embedding; ask it with rows")
        return np.asarray(self.embedding[np.asarray(tokens, dtype=np.int64)])

    @property
    def known_embedding(self) -> tuple[Array, bool]:
        """Rows of the tokens, zero where they are not known, and whether they are those of the
        unembedding."""
        rows = np.zeros_like(self.unembedding) if self.embedding is None else self.embedding
        return rows, self.embedding is not None and bool(np.array_equal(rows, self.unembedding))

    def sensitivity(self, batch: Array) -> Array:
        """The largest log-probability of each answer: rounding of the logits is relative to it."""
        return np.asarray(np.maximum(1.0, np.abs(self(batch)).max(axis=1)))

    def score_strength(self) -> float:
        """Typical score of two normed rows in random directions, the largest over heads."""
        sizes = [0.0]
        for layer in self.canonical().layers:
            part, width = layer.attention, layer.attention.head_width
            for head in range(part.heads):
                group = head // part.shared_by
                key, query = part.key[group * width :][:width], part.query[head * width :][:width]
                sizes.append(float(np.linalg.norm(key.T @ query) / np.sqrt(width)))
        return max(sizes)

    def canonical(self) -> LanguageModel:
        """Norms of gain one, gauges of heads and neurons fixed, logits without their mean. The embedding
        stays."""
        lost, rotary = self._mean_lost, is_rotary(self.positions)
        norm, unembedding = canonical_unembedding(self.final_norm, self.unembedding)
        layers = [canonical_layer(layer, rotary=rotary, mean_lost=lost) for layer in self.layers]
        return LanguageModel(
            layers, norm, unembedding, canonical_positions(self.positions, mean_lost=lost), self.embedding
        )

    def distance(self, other: Self) -> float:
        """Largest relative difference of any part, up to the symmetries; infinite when depth, heads or
        neurons differ."""
        self._same_family(other)
        one, two = self.canonical(), other.canonical()
        if len(one.layers) != len(two.layers) or type(one.final_norm) is not type(two.final_norm):
            return float("inf")
        if type(one.positions) is not type(two.positions):
            return float("inf")
        rotary = is_rotary(one.positions)
        parts = [
            relative(one.unembedding, two.unembedding),
            relative(np.array([one.final_norm.eps]), np.array([two.final_norm.eps])),
            relative(one.final_norm.bias, two.final_norm.bias),
            *(layer_distance(a, b, rotary=rotary) for a, b in zip(one.layers, two.layers, strict=True)),
        ]
        if isinstance(one.positions, LearnedPositions) and isinstance(two.positions, LearnedPositions):
            same = one.positions.table.shape == two.positions.table.shape
            parts.append(relative(one.positions.table, two.positions.table) if same else float("inf"))
        if isinstance(one.positions, Rotary) and isinstance(two.positions, Rotary):
            widths = {layer.attention.head_width for layer in (*one.layers, *two.layers)}
            parts += [
                float(np.abs(one.positions.frequencies(w) / two.positions.frequencies(w) - 1.0).max())
                for w in widths
            ]
        return max(parts)

    def tensors(self) -> dict[str, Array]:
        return to_tensors(self)

    @classmethod
    def _check_widths(cls, shapes: Mapping[str, tuple[int, ...]]) -> None:
        check_widths(shapes)

    @classmethod
    def _layer_from(cls, left: dict[str, Array], name: str) -> DecoderLayer:
        return layer_from(left, name)

    @classmethod
    def _model_from(cls, layers: list[DecoderLayer], left: dict[str, Array]) -> Self:
        norm, unembedding = norm_from(left, "final_norm"), left.pop("unembedding")
        return cls(layers, norm, unembedding, positions_from(left), left.pop("embedding", None))

    def to_transformers(self, folder: str | Path) -> Path:
        """Writes config.json and model.safetensors, which `from_pretrained` of LlamaForCausalLM or
        GPT2LMHeadModel loads."""
        from unsoftmax.models.language_model.transformers_format import write_folder

        return write_folder(self, Path(folder))

    @classmethod
    def from_transformers(cls, source: Any) -> LanguageModel:
        """The model of a LlamaForCausalLM, a GPT2LMHeadModel, or a folder that `save_pretrained` wrote."""
        from unsoftmax.models.language_model.transformers_format import read_model

        return read_model(source)
