"""The forward pass: rows in, log-probabilities of the token after the last row out."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.base import softmax
from unsoftmax.models.language_model.parts import Attention, DecoderLayer, Positions, Rotary

__all__ = ["attend", "decode", "log_softmax"]


def log_softmax(logits: Array) -> Array:
    """Logarithms of the softmax over the last axis.

    >>> log_softmax(np.zeros((1, 4)))[0, 0] == -np.log(4.0)
    np.True_
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def attend(part: Attention, rows: Array, positions: Positions | None, *, last_only: bool) -> Array:
    """What attention adds to the rows (B, N, d), already normed; with `last_only` to the last row alone, as
    (B, 1, d)."""
    B, N, _ = rows.shape
    width, each = part.head_width, part.shared_by
    queries = _projected(rows, part.query, part.query_bias).reshape(B, N, part.heads, width)
    keys = _projected(rows, part.key, part.key_bias).reshape(B, N, part.groups, width)
    values = _projected(rows, part.value, part.value_bias).reshape(B, N, part.groups, width)
    if isinstance(positions, Rotary):
        queries, keys = positions.rotate(queries), positions.rotate(keys)
    if last_only:
        queries = queries[:, -1:]
    # (B, groups, each, asking, d_h)
    asked = queries.reshape(B, -1, part.groups, each, width).transpose(0, 2, 3, 1, 4)
    offered = keys.transpose(0, 2, 3, 1)[:, :, None]  # (B, groups, 1, d_h, N)
    scores = asked @ offered / np.sqrt(width)
    if not last_only:
        scores = np.where(np.tri(N, dtype=bool), scores, -np.inf)
    mixed = softmax(scores) @ values.transpose(0, 2, 1, 3)[:, :, None]  # (B, groups, each, asking, d_h)
    joined = mixed.transpose(0, 3, 1, 2, 4).reshape(B, -1, part.heads * width)
    return _projected(joined, part.output, part.output_bias)


def decode(layers: tuple[DecoderLayer, ...], rows: Array, positions: Positions | None) -> Array:
    """The last row (B, d) of the residual stream after all layers."""
    stream = rows
    for layer in layers:
        last = layer is layers[-1]  # later rows of the last layer are not seen
        added = attend(layer.attention, layer.attention_norm(stream), positions, last_only=last)
        stream = (stream[:, -1:] if last else stream) + added
        stream = stream + layer.network(layer.network_norm(stream))
    return np.asarray(stream[:, -1])


def _projected(rows: Array, matrix: Array, bias: Array | None) -> Array:
    out = rows @ matrix.T
    return np.asarray(out if bias is None else out + bias)
