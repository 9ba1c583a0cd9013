"""Derivatives of what a pre-norm sublayer does to a row: its norm of gain one, and its network."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.parts import FeedForward, Network

__all__ = ["before_norm", "network_slope", "normed"]


def normed(x: Array, eps: float) -> tuple[Array, Array]:
    """Rows (..., d) behind an RMSNorm of gain one, and the sizes (..., 1) that it divided by."""
    size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return x / size, size


def before_norm(readers: Array, n: Array, size: Array) -> Array:
    """Vectors (B, k, ..., d) that read normed rows n (B, ..., d), as they read the rows before the norm."""
    n, size = n[:, None], size[:, None]
    along = (readers * n).mean(axis=-1, keepdims=True)
    return np.asarray((readers - along * n) / size)


def network_slope(part: Network, n: Array) -> Array:
    """The derivative (..., d, d) of a network at rows n (..., d)."""
    if isinstance(part, FeedForward):
        slopes = part.activation.first(n @ part.inner.T + part.inner_bias)
        return np.asarray((part.outer * slopes[..., None, :]) @ part.inner)
    active, offered = n @ part.gate.T, n @ part.up.T
    by_gate, by_up = part.activation.first(active) * offered, part.activation(active)
    return np.asarray(
        (part.down * by_gate[..., None, :]) @ part.gate + (part.down * by_up[..., None, :]) @ part.up
    )
