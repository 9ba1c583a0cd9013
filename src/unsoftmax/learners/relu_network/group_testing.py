"""Which components of which gradients are wrong? Group testing: one query per arc, halving only where it
disagrees."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.gradients import Sketch
from unsoftmax.learners.relu_network.kinks import SLACK, Flags, Indices

__all__ = ["repair"]


def repair(sketch: Sketch, rng: np.random.Generator, shrink: float) -> tuple[Indices, Indices]:
    """Tests all components with steps `shrink` times shorter and corrects wrong ones in place: their arcs and
    directions."""
    arcs, k = sketch.arcs, sketch.circle.dimensions
    found: list[tuple[Indices, Indices]] = [(np.zeros(0, dtype=int), np.zeros(0, dtype=int))]
    steps = shrink * sketch.reach
    arc, start, stop = (
        np.arange(arcs.count + 1),
        np.zeros(arcs.count + 1, dtype=int),
        np.full(arcs.count + 1, k),
    )
    while k and len(arc):
        wrong, single = _disagree(sketch, rng, steps, arc, start, stop)
        arc, start, stop, single = arc[wrong], start[wrong], stop[wrong], single[wrong]
        leaf = stop - start == 1
        sketch.gradients[arc[leaf], start[leaf]] = single[leaf]
        sketch.reach[arc[leaf]] = np.minimum(sketch.reach[arc[leaf]], 0.5 * steps[arc[leaf]])
        found.append((arc[leaf], start[leaf]))
        arc, start, stop = arc[~leaf], start[~leaf], stop[~leaf]
        if len(arc) > 3 * (arcs.count + 1):
            break
        half = (start + stop) // 2
        arc, start, stop = (
            np.concatenate([arc, arc]),
            np.concatenate([start, half]),
            np.concatenate([half, stop]),
        )
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _disagree(
    sketch: Sketch, rng: np.random.Generator, steps: Array, arc: Indices, start: Indices, stop: Indices
) -> tuple[Flags, Array]:
    """For each group (an arc and a range of components): does a random combination differ from its
    prediction, and the first component anew."""
    circle = sketch.circle
    mix = rng.choice([-1.0, 1.0], (len(arc), circle.dimensions)) * rng.uniform(
        0.5, 1.0, (len(arc), circle.dimensions)
    )
    place = np.arange(circle.dimensions)[None]
    mix *= (place >= start[:, None]) & (place < stop[:, None])
    mix *= (steps[arc] / np.sqrt(stop - start))[:, None]
    moved = circle(sketch.arcs.middles[arc], mix @ circle.others) - sketch.arcs.values[arc]
    predicted = np.einsum("gk,gk->g", mix, sketch.gradients[arc])
    wrong = np.abs(moved - predicted) > 4.0 * SLACK * sketch.noise
    return wrong, moved / mix[np.arange(len(arc)), start]
