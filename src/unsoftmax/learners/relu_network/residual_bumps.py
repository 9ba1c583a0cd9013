"""What a line can miss: a bump so narrow that no point fell into it. Learnt from the residual, on lines
through points that deviate."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.arcs import settle_arcs
from unsoftmax.learners.relu_network.circle import HalfCircle, RowFunction
from unsoftmax.learners.relu_network.gradients import measure_gradients
from unsoftmax.learners.relu_network.kinks import find_kinks
from unsoftmax.models import CanonicalNetwork
from unsoftmax.outcomes import OutsideClass

__all__ = ["learn_leftover"]


def learn_leftover(
    function: RowFunction,
    folds: CanonicalNetwork,
    point: Array,
    unit: float,
    noise: float,
    rng: np.random.Generator,
    limit: int,
) -> tuple[CanonicalNetwork, Array] | None:
    """CanonicalNetwork with those added that the residual shows on a line through `point`, and errors of
    those as `Sketch.uncertainty` counts them.

    None when it shows nothing that explains the point.
    """

    def residual(rows: Array) -> Array:
        return np.asarray(function(rows) - folds(rows))

    near = float(np.abs(point).max()) < 1e3 * unit
    circle = HalfCircle(residual, folds.width, True, rng, unit, point if near else None)
    try:
        found = find_kinks(circle, noise, rng, pieces=16, limit=limit)
        if len(found.angles) == 0 or len(found.angles) > max(64, folds.count):
            return None
        found, arcs = settle_arcs(circle, found, rng, limit)
    except OutsideClass:  # the residual bends everywhere: something other than a bump is wrong
        return None
    if not (arcs.misfits <= 64.0 * noise).all():
        return None
    extra = measure_gradients(circle, arcs, noise, rng)
    better = folds.plus(extra.folds())
    answer = float(function(point[None])[0])
    before, after = abs(answer - float(folds(point[None])[0])), abs(answer - float(better(point[None])[0]))
    return (better, circle.leverage * extra.uncertainty()) if after <= 1e-3 * before else None
