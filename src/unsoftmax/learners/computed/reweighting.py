"""Weights of sequences in the last fits: by what a fit leaves of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import rms
from unsoftmax.solvers.head_fits.sequence_fit import SequenceFit, predict_sequences
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads

__all__ = ["reweighted"]


def reweighted(fit: SequenceFit, heads: VectorHeads) -> SequenceFit:
    """Every group by its residual; single sequences that are off by more than four of it by that."""
    blocks = []
    for block in fit.blocks:
        left = np.linalg.norm(predict_sequences(heads, block) - block.answers, axis=1) * block.weights
        left = left / np.sqrt(heads.outputs)
        unit = max(float(np.median(left)), 0.3 * rms(left), 1e-300)
        weights = block.weights / unit * np.minimum(1.0, 4.0 / np.maximum(left / unit, 1e-30))
        blocks.append(replace(block, weights=weights))
    return SequenceFit.of(blocks)
