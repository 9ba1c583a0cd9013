"""Prompts and states of a decoder in the coordinates that its norms see.

LayerNorm removes the mean of a row, so everything happens in the k = d - 1 coordinates beside it, where
LayerNorm is an RMSNorm: s/√(|s|²/d + eps) = √(d/k)·s/√(|s|²/k + eps·d/k). With RMSNorm k is d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array, centred_basis
from unsoftmax.meters.language_model.prompts import Prompts, centred_logits
from unsoftmax.models.parts import LayerNorm, Norm

__all__ = ["SeenRows"]


@dataclass(frozen=True, eq=False)
class SeenRows:
    """unembedding (V, d), norm: logits are unembedding·norm(row), a constant a prompt aside."""

    prompts: Prompts
    unembedding: Array
    norm: Norm

    @cached_property
    def basis(self) -> Array:
        """(d, k), orthonormal columns."""
        d = self.prompts.width
        return centred_basis(d) if isinstance(self.norm, LayerNorm) else np.eye(d)

    @property
    def width(self) -> int:
        """k"""
        return int(self.basis.shape[1])

    @property
    def stretch(self) -> float:
        """√(d/k): a norm of the model over the RMSNorm of k coordinates."""
        return float(np.sqrt(self.prompts.width / self.width))

    @cached_property
    def _read(self) -> tuple[Array, Array]:
        matrix = self.unembedding @ self.basis * self.stretch
        offset = np.zeros(len(matrix)) if self.norm.bias is None else self.unembedding @ self.norm.bias
        return np.asarray(np.linalg.pinv(matrix).T), np.asarray(offset - offset.mean())

    @cached_property
    def conditioning(self) -> float:
        """How much an error of a logit can grow in a state."""
        values = np.linalg.svd(self.unembedding @ self.basis, compute_uv=False)
        return float(values[0] / values[-1]) if values[-1] > 0.0 else float("inf")

    def __call__(self, rows: Array) -> Array:
        """States h/√(mean h² + eps) (B, k) of prompts (B, N, k), h the stream behind the last row."""
        inverse, offset = self._read
        return np.asarray((centred_logits(self.prompts.ask(rows @ self.basis.T)) - offset) @ inverse)
