"""What one forward pass of a block keeps, for residuals and for derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.models.base import softmax

__all__ = ["Pass", "forward_pass"]


@dataclass(frozen=True)
class Pass:
    """Arrays of n sequences; where heads differ, their axis comes first: (H, n, ...).

    last, last_size: of the last norm, empty where norms come first. stream: (n, m), before the first of them.
    """

    out: Array
    tokens: Array
    asking: Array
    projected: Array
    weights: Array
    mixed: Array
    lifted: Array
    middle: Array
    middle_size: Array
    hidden: Array
    last: Array
    last_size: Array
    stream: Array


def forward_pass(shape: BlockShape, state: BlockState, rows: Array) -> Pass:
    """rows (n, N, d), answered with their last one."""
    basis, n = shape.basis, len(rows)

    def normed(seen: Array, log_eps: float) -> tuple[Array, Array]:
        if not shape.normed:
            return seen, np.ones((*seen.shape[:-1], 1))
        size = np.sqrt((seen**2).sum(axis=-1, keepdims=True) / shape.width + np.exp(log_eps))
        return seen / size, size

    tokens = normed(rows @ basis, state.log_eps[0])[0] if shape.norm_first else rows
    asking = np.column_stack([tokens[:, -1], np.ones(n)])
    projected = asking @ state.queries.transpose(0, 2, 1)  # (H, n, r)
    if rows.shape[1] == 1:
        weights = np.ones((state.heads, n, 1))
        mixed = np.broadcast_to(tokens[:, 0], (state.heads, n, tokens.shape[2]))
    else:
        scores = np.matmul(tokens, (projected @ state.keys).transpose(1, 2, 0)).transpose(2, 0, 1)
        weights = softmax(scores)
        mixed = np.matmul(weights.transpose(1, 0, 2), tokens).transpose(1, 0, 2)
    lifted = np.concatenate([*(mixed @ state.values.transpose(0, 2, 1)), np.ones((n, 1))], axis=1)
    y = lifted @ state.outputs.T
    if shape.skip:
        y = y + (rows[:, -1] if shape.norm_first else rows[:, -1] @ basis)
    middle, middle_size = normed(y @ basis if shape.norm_first else y, state.log_eps[int(shape.norm_first)])
    hidden = middle @ state.inner[:, :-1].T + state.inner[:, -1]
    network = shape.activation(hidden) @ state.outer[:, :-1].T + state.outer[:, -1]
    if shape.norm_first:
        passed = y @ state.readout.T if state.readout.size else y
        out, last, last_size = passed + network, np.empty((n, 0)), np.empty((n, 0))
    else:
        r = ((middle @ basis.T) * state.gains[0]) @ basis + network
        last, last_size = normed(r, state.log_eps[1])
        out = (last @ basis.T) * state.gains[1] + state.gains[2]
    attention = (tokens, asking, projected, weights, mixed, lifted)
    return Pass(out, *attention, middle, middle_size, hidden, last, last_size, y)
