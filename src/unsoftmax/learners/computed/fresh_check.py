"""Are fitted heads right up to the layer's own rounding? Fresh sequences of several lengths and sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, longest_rows, rms
from unsoftmax.learners.computed.prices import FRESH_LENGTHS, FRESH_LENGTHS_OF_VECTORS
from unsoftmax.learners.computed.two_row_queries import Asks, TwoRowQueries
from unsoftmax.models import MultiHead

__all__ = ["FreshCheck", "check_fresh"]

# deviations over the rounding of single rows: at most 0.9 in 300 right fits (width 1 the worst, 0.1 from
# width 16 on)
_EXPLAINED = 3.0


@dataclass(frozen=True)
class FreshCheck:
    """deviation: root mean square of (answer − prediction) over what a sequence could show at most. rounding:
    of single rows.
    """

    deviation: float
    rounding: float
    queries: int

    @property
    def passed(self) -> bool:
        return self.deviation <= _EXPLAINED * self.rounding


def check_fresh(
    asker: Asks, model: MultiHead, bits: int, rounding: float, rng: np.random.Generator
) -> FreshCheck:
    """Sequences of Gaussian rows, of token size and of the size at which scores are moderate."""
    d, queries = model.width, TwoRowQueries(asker, bits)
    strength = model.score_strength()
    sizes = {1.0, float(np.clip(np.sqrt(2.0 / (strength * d)), 0.1, 10.0)) if strength > 0 else 1.0}
    bound = asker.input_bound
    left: list[Array] = []
    for size in sorted(sizes):
        for usual, count in FRESH_LENGTHS if model.outputs is None else FRESH_LENGTHS_OF_VECTORS:
            length = min(usual, asker.max_length or usual)
            batch = size * np.clip(rng.standard_normal((count, length, d)), -2.0, 2.0)
            if bound is not None:
                longest = float(longest_rows(batch).max())
                batch *= min(1.0, 0.99 * bound / longest)
            batch = queries.rounded(batch)
            gaps = np.abs(asker.ask(batch) - model(batch)).reshape(count, -1).max(axis=1)
            left.append(gaps / model.sensitivity(batch))
    found = np.concatenate(left)
    return FreshCheck(rms(found), rounding, len(found))
