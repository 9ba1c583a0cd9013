"""Which activation, and its argument along one direction: fits of weight·φ''(steepness·t + bias), or of φ',
to what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.parts import GELU, GELU_TANH, SILU, SOFTPLUS, TANH, Activation
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["ACTIVATION_TEST", "Profiles", "choose_activation", "fit_profiles", "rank_activations"]

ACTIVATION_TEST = Test("second derivatives along a neuron's direction are those of a known activation")
# tanh stands for sigmoid too: 2·sigmoid(2z) = tanh(z) + 1
CANDIDATES = (GELU, GELU_TANH, SILU, TANH, SOFTPLUS)

_STEEPNESS = np.geomspace(0.05, 20.0, 48)  # in units of the inverse spread of t
_BIASES = np.linspace(-5.0, 5.0, 61)  # places of a kink along a neuron, in its own units
_STARTS = 4  # the best of the grid, from which a profile is fitted
_ITERATIONS = 60  # of that fit, at most
_DIFFERENCE = 1e-5  # third derivatives by differences: an error of 1e-10 only slows the fit
_POOR = 0.1  # relative misfit of the median neuron from which no activation is believed
_HARDLY_MORE = 3.0  # times the least misfit: the two forms of GELU differ by less where neurons are inexact


@dataclass(frozen=True)
class Profiles:
    """weight·φ''(steepness·t + bias) for every neuron, or φ' for gates; misfit: rms of what is left, relative
    to the data."""

    activation: Activation
    weight: Array
    steepness: Array
    bias: Array
    misfit: Array


def choose_activation(
    t: Array, bends: Array, candidates: Sequence[Activation] = CANDIDATES, *, derivative: int = 2
) -> Profiles:
    """The activation whose fits leave least, from t (P, J) and derivatives (P, J) of order 1 or 2, up to a
    factor per neuron."""
    return rank_activations(t, bends, candidates, derivative=derivative)[0]


def rank_activations(
    t: Array, bends: Array, candidates: Sequence[Activation] = CANDIDATES, *, derivative: int = 2
) -> list[Profiles]:
    """The activation whose fits leave least, and after it those that leave hardly more."""
    fits = [fit_profiles(activation, t, bends, derivative=derivative) for activation in candidates]
    fits.sort(key=_typical_misfit)
    least = _typical_misfit(fits[0])
    if least > _POOR:
        raise OutsideClass(
            ACTIVATION_TEST,
            f"{fits[0].activation.name} fits best and leaves {least:.2g} of a typical neuron's second "
            "derivatives",
        )
    return [fit for fit in fits if _typical_misfit(fit) <= min(_POOR, _HARDLY_MORE * least)]


def _typical_misfit(fit: Profiles) -> float:
    return float(np.median(fit.misfit))


def fit_profiles(activation: Activation, t: Array, bends: Array, *, derivative: int = 2) -> Profiles:
    """Fits every column: the best places of a grid, then Levenberg-Marquardt on all neurons at once."""
    curve = _Curve(activation, derivative)
    spread = np.maximum(t.std(axis=0), 1e-300)
    size = np.maximum(np.sqrt((bends**2).mean(axis=0)), 1e-300)
    x, y = t / spread, bends / size
    found = _refined(curve, x, y, _grid_starts(curve, x, y))
    weight, steepness, bias, misfit = found.T
    return Profiles(activation, weight * size, steepness / spread, bias, misfit)


@dataclass(frozen=True)
class _Curve:
    """φ' or φ'', and its own derivative."""

    activation: Activation
    derivative: int

    def value(self, z: Array) -> Array:
        return self.activation.first(z) if self.derivative == 1 else self.activation.second(z)

    def slope(self, z: Array) -> Array:
        if self.derivative == 1:
            return self.activation.second(z)
        return (self.activation.second(z + _DIFFERENCE) - self.activation.second(z - _DIFFERENCE)) / (
            2.0 * _DIFFERENCE
        )

    @property
    def steepness(self) -> Array:
        """φ'' is even or odd, so that the sign of t does not matter; φ' is neither."""
        return _STEEPNESS if self.derivative == 2 else np.concatenate([-_STEEPNESS[::-1], _STEEPNESS])


def _grid_starts(curve: _Curve, x: Array, y: Array) -> Array:
    """(J, S, 2): the highest peaks, over a grid of (steepness, bias), of what the best weight explains."""
    steepness = curve.steepness
    steep, shift = (grid.ravel() for grid in np.meshgrid(steepness, _BIASES, indexing="ij"))
    starts = np.empty((x.shape[1], _STARTS, 2))
    for j in range(x.shape[1]):
        curves = curve.value(steep[:, None] * x[:, j] + shift[:, None])
        power = (curves**2).sum(axis=1)
        along = curves @ y[:, j]
        gain = np.where(power > 1e-12, along**2 / np.maximum(power, 1e-300), 0.0).reshape(len(steepness), -1)
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


def _refined(curve: _Curve, x: Array, y: Array, starts: Array) -> Array:
    """(J, 4): weight, steepness, bias and misfit of the best start of each neuron; the weight is solved for
    exactly."""
    J, S, _ = starts.shape
    X, Y = np.repeat(x.T, S, axis=0), np.repeat(y.T, S, axis=0)
    place = starts.reshape(J * S, 2).copy()
    weight, cost = _weights(curve, X, Y, place)
    damping = np.full(len(place), 1e-2)
    for _ in range(_ITERATIONS):
        z = place[:, :1] * X + place[:, 1:]
        slope, value = curve.slope(z), curve.value(z)
        columns = np.stack([weight[:, None] * slope * X, weight[:, None] * slope, value], axis=2)
        rest = Y - weight[:, None] * value
        normal = np.einsum("npa,npb->nab", columns, columns)
        scale = np.einsum("naa->na", normal)
        damped = normal + (damping[:, None] * scale + 1e-300)[:, :, None] * np.eye(3)
        move = np.linalg.solve(damped, np.einsum("npa,np->na", columns, rest)[..., None])[..., 0]
        trial = place + move[:, :2]
        new_weight, new_cost = _weights(curve, X, Y, trial)
        better = new_cost < cost
        place[better], weight[better], cost[better] = trial[better], new_weight[better], new_cost[better]
        damping = np.where(better, damping * 0.2, damping * 5.0).clip(1e-14, 1e10)
    best = cost.reshape(J, S).argmin(axis=1) + S * np.arange(J)
    return np.column_stack([weight[best], place[best], np.sqrt(cost[best])])


def _weights(curve: _Curve, X: Array, Y: Array, place: Array) -> tuple[Array, Array]:
    """The best weight at each place, and the mean square that it leaves."""
    value = curve.value(place[:, :1] * X + place[:, 1:])
    power = np.maximum((value**2).sum(axis=1), 1e-300)
    weight = (value * Y).sum(axis=1) / power
    cost = ((Y - weight[:, None] * value) ** 2).mean(axis=1)
    return weight, np.where(np.isfinite(cost), cost, np.inf)
