"""Which components of which gradients are wrong? Group testing: one query an arc, halving only where it disagrees."""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.relu.gradients import Sketch
from unsoftmax.learners.relu.kinks import SLACK, Flags, Indices
from unsoftmax.oracles import Array

__all__ = ["repair"]


def repair(sketch: Sketch, rng: np.random.Generator, shrink: float) -> tuple[int, int]:
    """Tests all components with steps `shrink` times shorter and corrects wrong ones in place: (arcs that disagreed, components corrected)."""
    arcs, k = sketch.arcs, sketch.circle.dimensions
    if k == 0:
        return 0, 0
    steps = shrink * sketch.steps
    corrected = sketch.steps.copy()
    arc, start, stop = np.arange(arcs.count + 1), np.zeros(arcs.count + 1, dtype=int), np.full(arcs.count + 1, k)
    bad_arcs, fixed = 0, 0
    while len(arc):
        wrong, single = _disagree(sketch, rng, steps, arc, start, stop)
        if fixed == 0 and bad_arcs == 0:
            bad_arcs = int(wrong.sum())
        arc, start, stop, single = arc[wrong], start[wrong], stop[wrong], single[wrong]
        leaf = stop - start == 1
        sketch.gradients[arc[leaf], start[leaf]] = single[leaf]
        corrected[arc[leaf]] = 0.5 * steps[arc[leaf]]
        fixed += int(leaf.sum())
        arc, start, stop = arc[~leaf], start[~leaf], stop[~leaf]
        if len(arc) > 3 * (arcs.count + 1):
            break
        half = (start + stop) // 2
        arc, start, stop = np.concatenate([arc, arc]), np.concatenate([start, half]), np.concatenate([half, stop])
    sketch.steps = corrected
    return bad_arcs, fixed


def _disagree(sketch: Sketch, rng: np.random.Generator, steps: Array, arc: Indices, start: Indices, stop: Indices) -> tuple[Flags, Array]:
    """For each group (an arc and a range of components): does a random combination differ from its prediction, and the first component anew."""
    circle = sketch.circle
    mix = rng.choice([-1.0, 1.0], (len(arc), circle.dimensions)) * rng.uniform(0.5, 1.0, (len(arc), circle.dimensions))
    place = np.arange(circle.dimensions)[None]
    mix *= (place >= start[:, None]) & (place < stop[:, None])
    mix *= (steps[arc] / np.sqrt(stop - start))[:, None]
    moved = circle(sketch.arcs.middles[arc], mix @ circle.others) - sketch.arcs.values[arc]
    predicted = np.einsum("gk,gk->g", mix, sketch.gradients[arc])
    wrong = np.abs(moved - predicted) > 4.0 * SLACK * sketch.noise
    return wrong, moved / mix[np.arange(len(arc)), start]
