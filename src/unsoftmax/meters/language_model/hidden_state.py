"""The last hidden state behind the final norm, from log-probabilities and a known unembedding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.prompts import Prompts, centred_logits

__all__ = ["HiddenState"]


@dataclass(frozen=True, eq=False)
class HiddenState:
    """Reads n = h/√(mean h² + eps) of the last row, h the residual stream after all layers, for models with
    RMSNorm.

    unembedding: (V, d), gain of the final norm folded in, columns without their mean. One query a state.
    """

    prompts: Prompts
    unembedding: Array

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.unembedding).T)

    @cached_property
    def conditioning(self) -> float:
        """How much an error of a logit can grow in the state: largest over smallest singular value."""
        values = np.linalg.svd(self.unembedding, compute_uv=False)
        return float(values[0] / values[-1]) if values[-1] > 0.0 else float("inf")

    def __call__(self, batch: Array) -> Array:
        """States (B, d) of prompts (B, N, d)."""
        return np.asarray(centred_logits(self.prompts.ask(batch)) @ self._inverse)
