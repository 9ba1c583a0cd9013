"""Which rows, and how many, show neurons that have a kink."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.deep_stack.neurons import GatedNeurons, Neurons

__all__ = ["rows_off_kinks", "rows_that_turn_on"]

_MARGIN = 3.0  # distance from a kink over what layers add to a row at the shortest size read
_REDRAWN = 60  # a cap: where a row meets a kink with 90 %, one in 500 still does after 60 draws
_SPARE = 2.0  # rows on which a neuron is on, over its weights: each tells one of them
_DRAWN = 2000  # directions on which shares are counted
_RAREST = 0.01  # share below which a neuron is not waited for


def rows_that_turn_on(neurons: Neurons, rng: np.random.Generator) -> int:
    """How many random rows turn every neuron on often enough to tell its weights; 0 where all are smooth."""
    if isinstance(neurons, GatedNeurons) or neurons.activation.smooth:
        return 0
    d = neurons.inner.shape[1]
    share = (neurons.values(unit_rows(rng, _DRAWN, d)) > 0.0).mean(axis=0)
    return int(_SPARE * (d + 1) / max(float(share.min()), _RAREST))


def rows_off_kinks(jets: CollapsedLayer, neurons: Neurons, count: int, rng: np.random.Generator) -> Array:
    """Random directions (count, d) on which no neuron has a kink between the sizes that are read."""
    d = jets.stream.width
    n = unit_rows(rng, count, d)
    if isinstance(neurons, GatedNeurons) or neurons.activation.smooth:
        return n
    sizes = np.linalg.norm(neurons.inner, axis=1)
    reach = _MARGIN * jets.scales.top * jets.sizes[0] * np.sqrt(d) * sizes
    for _ in range(_REDRAWN):
        met = (np.abs(n @ neurons.inner.T + neurons.bias) < reach).any(axis=1)
        if not met.any():
            return n
        n[met] = unit_rows(rng, int(met.sum()), d)
    raise Unresolved("hardly any direction is far from all kinks at the sizes of rows that are read")
