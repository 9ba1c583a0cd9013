"""From the residual stream after attention to the state behind the final norm, with its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model import GatedNetwork

__all__ = ["AfterAttention"]


@dataclass(frozen=True, eq=False)
class AfterAttention:
    """state = norm(y + network(norm(y))). second_eps, last_eps: of the two norms."""

    network: GatedNetwork
    second_eps: float
    last_eps: float

    def __call__(self, stream: Array) -> tuple[Array, Array]:
        """States (B, d) of streams y (B, d), and their Jacobians (B, d, d)."""
        net, d = self.network, stream.shape[1]
        size = np.sqrt((stream * stream).mean(axis=1, keepdims=True) + self.second_eps)
        n = stream / size
        active, offered = n @ net.gate.T, n @ net.up.T
        value, slope = net.activation(active), net.activation.first(active)
        h = stream + (value * offered) @ net.down.T
        last = np.sqrt((h * h).mean(axis=1, keepdims=True) + self.last_eps)
        seen = h / last
        inner = (slope * offered)[..., None] * net.gate + value[..., None] * net.up  # (B, m, d)
        eye = np.eye(d)
        before = (eye - n[:, :, None] * n[:, None, :] / d) / size[..., None]
        after = (eye - seen[:, :, None] * seen[:, None, :] / d) / last[..., None]
        return np.asarray(seen), np.asarray(after @ (eye + (net.down @ inner) @ before))
