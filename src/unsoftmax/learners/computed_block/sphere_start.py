"""The network behind a norm on the sphere that the norm's output fills, of a block whose residual stream is
answered beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.circles import Sphere, has_kinks
from unsoftmax.learners.computed_block.kinked_neurons import find_kinked_neurons
from unsoftmax.learners.computed_block.outer_layer import Layers, kinked_layers
from unsoftmax.learners.computed_block.smooth_neurons import (
    expanded_networks,
    first_that_arrives,
    oriented,
    points_needed,
    pruned,
)
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import RELU

__all__ = ["sphere_start"]

_ROUGH = 1e-4  # of the network's values: what too many neurons leave of them
_MOST_NEURONS, _OVER_WIDTH = 160, 8  # neurons that are tried at most, and the same over the width


def sphere_start(
    sphere: Sphere,
    shape: BlockShape,
    fitted: Callable[[BlockShape, Layers], tuple[BlockShape, BlockState]],
    explained: float,
    rng: np.random.Generator,
) -> tuple[BlockShape, BlockState]:
    """The network on the sphere, with kinks or smooth, and what a fit to single rows makes of it; of the
    activations that do, the first with which single rows are explained. explained: of the network's values,
    how far they may be off."""
    if has_kinks(sphere, rng):
        layers = kinked_layers(sphere, find_kinked_neurons(sphere, rng), shape.basis, rng)
        return fitted(replace(shape, activation=RELU), layers)
    k, outputs = sphere.width, sphere.ask(sphere.random_points(1, rng)).shape[1]
    most = min(_MOST_NEURONS, max(24, _OVER_WIDTH * k))
    points = sphere.random_points(points_needed(most, k, outputs), rng)
    values = sphere.ask(points)
    size = rms(values - values.mean(axis=0))

    def finish(plain: NetworkFit, inner: Array) -> tuple[BlockShape, BlockState]:
        fit = replace(plain, skip=True)
        found = oriented(fit, pruned(fit, inner, explained * size))
        layers = Layers(found.inner, found.outer, np.empty(0))
        return fitted(replace(shape, activation=fit.activation), layers)

    networks = expanded_networks(
        lambda activation, _: NetworkFit(activation, points, values, skip=False), _ROUGH * size, rng
    )
    return first_that_arrives(networks, finish)
