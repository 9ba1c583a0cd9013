"""Which activation, and its argument along one direction: fits of weight·φ''(steepness·t + bias) to second derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.models.parts import GELU, GELU_TANH, SILU, SOFTPLUS, TANH, Activation
from unsoftmax.oracles import Array
from unsoftmax.outcomes import OutsideClass

__all__ = ["ACTIVATION_TEST", "Profiles", "choose_activation", "fit_profiles"]

ACTIVATION_TEST = "second derivatives along a neuron's direction are those of a known activation"
CANDIDATES = (GELU, GELU_TANH, SILU, TANH, SOFTPLUS)  # tanh stands for sigmoid too: 2·sigmoid(2z) = tanh(z) + 1

_STEEPNESS = np.geomspace(0.05, 20.0, 48)  # in units of the inverse spread of t
_BIASES = np.linspace(-5.0, 5.0, 61)
_STARTS = 4
_ITERATIONS = 60
_POOR = 0.1  # relative misfit of the median neuron from which no activation is believed


@dataclass(frozen=True)
class Profiles:
    """weight·φ''(steepness·t + bias) for every neuron; misfit: rms of what is left, relative to the data."""

    activation: Activation
    weight: Array
    steepness: Array
    bias: Array
    misfit: Array


def choose_activation(t: Array, bends: Array, candidates: Sequence[Activation] = CANDIDATES) -> Profiles:
    """The activation whose fits leave least, from t (P, J) and second derivatives (P, J)."""
    fits = [fit_profiles(activation, t, bends) for activation in candidates]
    best = min(fits, key=lambda fit: float(np.median(fit.misfit)))
    if float(np.median(best.misfit)) > _POOR:
        raise OutsideClass(
            ACTIVATION_TEST,
            f"{best.activation.name} fits best and leaves {float(np.median(best.misfit)):.2g} of a typical neuron's second derivatives",
        )
    return best


def fit_profiles(activation: Activation, t: Array, bends: Array) -> Profiles:
    """Fits every column: the best places of a grid, then Levenberg-Marquardt on all neurons at once."""
    spread = np.maximum(t.std(axis=0), 1e-300)
    size = np.maximum(np.sqrt((bends**2).mean(axis=0)), 1e-300)
    x, y = t / spread, bends / size
    starts = _grid_starts(activation, x, y)  # (J, S, 2)
    found = _refined(activation, x, y, starts)
    weight, steepness, bias, misfit = found.T
    return Profiles(activation, weight * size, steepness / spread, bias, misfit)


def _grid_starts(activation: Activation, x: Array, y: Array) -> Array:
    steep, shift = np.meshgrid(_STEEPNESS, _BIASES, indexing="ij")
    steep, shift = steep.ravel(), shift.ravel()
    starts = np.empty((x.shape[1], _STARTS, 2))
    for j in range(x.shape[1]):
        curves = activation.second(steep[:, None] * x[:, j] + shift[:, None])
        power = (curves**2).sum(axis=1)
        along = curves @ y[:, j]
        gain = np.where(power > 1e-12, along**2 / np.maximum(power, 1e-300), 0.0).reshape(len(_STEEPNESS), -1)
        padded = np.pad(gain, 1, constant_values=-1.0)
        peak = (
            (gain >= padded[:-2, 1:-1])
            & (gain >= padded[2:, 1:-1])
            & (gain >= padded[1:-1, :-2])
            & (gain >= padded[1:-1, 2:])
        )
        order = np.argsort(-np.where(peak, gain, -1.0).ravel())[:_STARTS]
        starts[j] = np.column_stack([steep[order], shift[order]])
    return starts


def _refined(activation: Activation, x: Array, y: Array, starts: Array) -> Array:
    """(J, 4): weight, steepness, bias and misfit of the best start of each neuron; the weight is solved for exactly."""
    J, S, _ = starts.shape
    X, Y = np.repeat(x.T, S, axis=0), np.repeat(y.T, S, axis=0)
    place = starts.reshape(J * S, 2).copy()
    weight, cost = _weights(activation, X, Y, place)
    damping = np.full(len(place), 1e-2)
    step = 1e-6
    for _ in range(_ITERATIONS):
        z = place[:, :1] * X + place[:, 1:]
        third = (activation.second(z + step) - activation.second(z - step)) / (2.0 * step)
        curve = activation.second(z)
        columns = np.stack([weight[:, None] * third * X, weight[:, None] * third, curve], axis=2)
        rest = Y - weight[:, None] * curve
        normal = np.einsum("npa,npb->nab", columns, columns)
        scale = np.einsum("naa->na", normal)
        damped = normal + (damping[:, None] * scale + 1e-300)[:, :, None] * np.eye(3)
        move = np.linalg.solve(damped, np.einsum("npa,np->na", columns, rest)[..., None])[..., 0]
        trial = place + move[:, :2]
        new_weight, new_cost = _weights(activation, X, Y, trial)
        better = new_cost < cost
        place[better], weight[better], cost[better] = trial[better], new_weight[better], new_cost[better]
        damping = np.where(better, damping * 0.2, damping * 5.0).clip(1e-14, 1e10)
    best = cost.reshape(J, S).argmin(axis=1) + S * np.arange(J)
    return np.column_stack([weight[best], place[best], np.sqrt(cost[best])])


def _weights(activation: Activation, X: Array, Y: Array, place: Array) -> tuple[Array, Array]:
    """The best weight at each place, and the mean square that it leaves."""
    curve = activation.second(place[:, :1] * X + place[:, 1:])
    power = np.maximum((curve**2).sum(axis=1), 1e-300)
    weight = (curve * Y).sum(axis=1) / power
    cost = ((Y - weight[:, None] * curve) ** 2).mean(axis=1)
    return weight, np.where(np.isfinite(cost), cost, np.inf)
