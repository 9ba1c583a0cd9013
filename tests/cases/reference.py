"""The same functions by another hand: torch, for known answers that do not come from our own code."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


def torch_single_head(X: Array, W: Array, v: Array, w0: Array | None = None, c: float = 0.0) -> Array:
    """Attention of the last row by torch's own scaled_dot_product_attention."""
    tokens, matrix, readout = (torch.from_numpy(np.array(part, dtype=np.float64)) for part in (X, W, v))
    query = tokens[:, -1:] @ matrix.T
    if w0 is not None:
        query = query + torch.from_numpy(np.array(w0, dtype=np.float64))
    mixed = torch.nn.functional.scaled_dot_product_attention(query, tokens, tokens, scale=1.0)
    return np.asarray(((mixed @ readout).squeeze(1) + c).numpy(), dtype=np.float64)
