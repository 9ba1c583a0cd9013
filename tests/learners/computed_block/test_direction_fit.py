"""Networks of which only directions are seen."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.direction_fit import DirectionFit
from unsoftmax.learners.computed_block.smooth_neurons import (
    expanded_networks,
    first_that_arrives,
    oriented_beside_gains,
    pruned,
)
from unsoftmax.learners.encoder_block.state import mean_free_basis
from unsoftmax.models.parts import GELU, GELU_TANH, SILU, Activation
from unsoftmax.outcomes import Unresolved

WIDTH = 7


def _network(activation: Activation, seed: int) -> tuple[Array, Array, Array, Array, Array]:
    """(points, directions, inner, outer, gain) of gains beside ten neurons, on a sphere."""
    rng, basis = np.random.default_rng(seed), mean_free_basis(WIDTH)
    k = WIDTH - 1
    points = rng.standard_normal((500, k))
    points *= np.sqrt(WIDTH) / np.linalg.norm(points, axis=1, keepdims=True)
    inner = np.column_stack([0.5 * rng.standard_normal((10, k)), 0.3 * rng.standard_normal(10)])
    outer = 0.25 * rng.standard_normal((k, 11))
    gain = 1.0 + 0.2 * rng.standard_normal(WIDTH)
    gain /= np.sqrt(np.mean(gain**2))
    hidden = activation(points @ inner[:, :-1].T + inner[:, -1])
    r = points @ (basis.T * gain) @ basis + hidden @ outer[:, :-1].T + outer[:, -1]
    return points, r / np.linalg.norm(r, axis=1, keepdims=True), inner, outer, gain


def test_products_and_normal_matrix_are_of_one_jacobian() -> None:
    points, directions, inner, _, _ = _network(GELU, 1)
    fit, rng = DirectionFit(GELU, points, directions), np.random.default_rng(2)
    linear = fit.linearise(inner)
    step, residual = rng.standard_normal(inner.size), rng.standard_normal(directions.size + 1)
    assert linear.forward(step) @ residual == pytest.approx(step @ linear.backward(residual), rel=1e-6)
    columns = np.stack([linear.forward(column) for column in np.eye(inner.size)])
    assert np.abs(columns @ columns.T - linear.normal()).max() < 1e-6 * np.abs(linear.normal()).max()
    moved = fit.residual(fit.moved(inner, 1e-5 * step)) - fit.residual(fit.moved(inner, -1e-5 * step))
    assert rms(moved / 2e-5 - linear.forward(step)) < 1e-3 * rms(linear.forward(step))


@pytest.mark.parametrize(("activation", "seed"), [(SILU, 4)])
def test_neurons_are_found_by_directions_alone(activation: Activation, seed: int) -> None:
    points, directions, inner, outer, gain = _network(activation, seed)
    networks = expanded_networks(
        lambda each, _: DirectionFit(each, points, directions), 3e-5, np.random.default_rng(seed)
    )
    fit, found = next(networks)
    assert fit.activation is activation
    layers = oriented_beside_gains(fit, pruned(fit, found, 3e-6), mean_free_basis(WIDTH))
    assert len(layers.inner) == len(inner)
    order = [int(np.abs(layers.inner - row).sum(axis=1).argmin()) for row in inner]
    assert np.abs(layers.inner[order] - inner).max() < 1e-4
    assert np.abs(layers.outer[:, [*order, -1]] - outer).max() < 1e-4
    assert np.abs(layers.gain - gain).max() < 1e-4


def test_of_two_activations_that_do_the_one_that_explains_all_is_kept() -> None:
    """24 neurons with GELU pass for ten with its tanh form, to a hundred thousandth."""
    points, directions, _, _, _ = _network(GELU_TANH, 3)

    def finish(fit: DirectionFit, inner: Array) -> Activation:
        if rms(fit.residual(pruned(fit, inner, 1e-9))) > 1e-9:
            raise Unresolved("another activation")
        return fit.activation

    networks = expanded_networks(
        lambda each, _: DirectionFit(each, points, directions), 3e-4, np.random.default_rng(3)
    )
    assert first_that_arrives(networks, finish) is GELU_TANH
