"""Activations φ of a network's neurons, with φ', φ'' and what becomes of φ when its argument changes sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from unsoftmax.arrays import Array, expit
from unsoftmax.errors import UsageError
from unsoftmax.late_scipy import ndtr

__all__ = [
    "ACTIVATIONS",
    "GELU",
    "GELU_TANH",
    "RELU",
    "SIGMOID",
    "SILU",
    "SOFTPLUS",
    "TANH",
    "Activation",
    "Reflection",
    "activation_named",
]


@dataclass(frozen=True)
class Reflection:
    """φ(-z) = sign·φ(z) + slope·z + constant. A network cannot tell a neuron from its reflection but by its
    affine part."""

    sign: int
    slope: float = 0.0
    constant: float = 0.0


@dataclass(frozen=True)
class Activation:
    """A function of one number, applied to every entry; two activations of one name are one function.

    name: the word that files and options use.
    value, first, second: φ, φ' and φ'' on arrays of any shape.
    reflection: φ(-z) in terms of φ(z).
    smooth: whether φ'' is a function. Otherwise `second` holds only away from the kink at 0.
    straight: |z| from which φ(z) is affine on either side, up to float64 rounding.

    >>> GELU(np.array([0.0, 10.0]))
    array([ 0., 10.])
    >>> GELU.first(np.zeros(1)), GELU.smooth, RELU.smooth
    (array([0.5]), True, False)
    """

    name: str
    value: Callable[[Array], Array]
    first: Callable[[Array], Array]
    second: Callable[[Array], Array]
    reflection: Reflection
    smooth: bool = True
    straight: float = 0.0

    def __call__(self, z: Array, /) -> Array:
        return self.value(np.asarray(z, dtype=np.float64))

    def bend(self, z: Array) -> Array:
        """How far φ is from its asymptotes at z and at -z, for z from two on; a ReLU never is."""
        value = self(-z)
        return np.asarray(np.abs(value - np.round(value)))

    def __repr__(self) -> str:
        return f"Activation({self.name!r})"


def activation_named(name: str) -> Activation:
    """The activation of this name, or a `UsageError` that lists the names.

    >>> activation_named("relu") is RELU
    True
    """
    if name not in ACTIVATIONS:
        raise UsageError(f"unknown activation {name!r}; choose one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]


_BUMP = 1.0 / np.sqrt(2.0 * np.pi)  # height of the normal density, in GELU'
_TANH_SCALE = np.sqrt(2.0 / np.pi)  # the two constants of the tanh form of GELU, as its paper defines them
_TANH_CUBIC = 0.044715  # of the usual approximation of GELU by tanh


def _density(z: Array) -> Array:
    return np.asarray(_BUMP * np.exp(-0.5 * z * z))


def _gelu(z: Array) -> Array:
    return np.asarray(z * ndtr(z))


def _gelu_first(z: Array) -> Array:
    return np.asarray(ndtr(z) + z * _density(z))


def _gelu_second(z: Array) -> Array:
    return np.asarray((2.0 - z * z) * _density(z))


def _tanh_argument(z: Array) -> tuple[Array, Array, Array]:
    """q(z) inside the tanh form of GELU, with q' and q''."""
    return (
        _TANH_SCALE * (z + _TANH_CUBIC * z**3),
        _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBIC * z * z),
        _TANH_SCALE * 6.0 * _TANH_CUBIC * z,
    )


def _gelu_tanh(z: Array) -> Array:
    return np.asarray(0.5 * z * (1.0 + np.tanh(_tanh_argument(z)[0])))


def _gelu_tanh_first(z: Array) -> Array:
    q, dq, _ = _tanh_argument(z)
    return np.asarray(0.5 * (1.0 + np.tanh(q)) + 0.5 * z * _tanh_first(q) * dq)


def _gelu_tanh_second(z: Array) -> Array:
    q, dq, ddq = _tanh_argument(z)
    slope = _tanh_first(q)
    return np.asarray(slope * dq + 0.5 * z * (_tanh_second(q) * dq * dq + slope * ddq))


def _silu(z: Array) -> Array:
    return np.asarray(z * expit(z))


def _silu_first(z: Array) -> Array:
    return np.asarray(expit(z) + z * _sigmoid_first(z))


def _silu_second(z: Array) -> Array:
    return np.asarray(2.0 * _sigmoid_first(z) + z * _sigmoid_second(z))


def _tanh_first(z: Array) -> Array:
    """1 - tanh², without cancellation."""
    return np.asarray(4.0 * expit(2.0 * z) * expit(-2.0 * z))


def _tanh_second(z: Array) -> Array:
    return np.asarray(-2.0 * np.tanh(z) * _tanh_first(z))


def _softplus(z: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, z))


def _sigmoid(z: Array) -> Array:
    return np.asarray(expit(z))


def _sigmoid_first(z: Array) -> Array:
    return np.asarray(expit(z) * expit(-z))


def _sigmoid_second(z: Array) -> Array:
    return np.asarray(-np.tanh(0.5 * z) * _sigmoid_first(z))


def _relu(z: Array) -> Array:
    return np.maximum(z, 0.0)


def _step(z: Array) -> Array:
    return np.asarray(z > 0.0, dtype=np.float64)


# `straight` is where z·Q(z), z·s(-z), s(-z) or 1 - tanh z falls below 1e-16
_GATED = Reflection(sign=1, slope=-1.0)  # φ(z) = z·s(z) with s(z) + s(-z) = 1, and softplus

RELU = Activation("relu", _relu, _step, np.zeros_like, _GATED, smooth=False)
GELU = Activation("gelu", _gelu, _gelu_first, _gelu_second, _GATED, straight=8.5)
GELU_TANH = Activation("gelu-tanh", _gelu_tanh, _gelu_tanh_first, _gelu_tanh_second, _GATED, straight=7.3)
SILU = Activation("silu", _silu, _silu_first, _silu_second, _GATED, straight=40.0)
SOFTPLUS = Activation("softplus", _softplus, _sigmoid, _sigmoid_first, _GATED, straight=37.0)
TANH = Activation("tanh", np.tanh, _tanh_first, _tanh_second, Reflection(sign=-1), straight=19.0)
_OF_SIGMOID = Reflection(sign=-1, constant=1.0)
SIGMOID = Activation("sigmoid", _sigmoid, _sigmoid_first, _sigmoid_second, _OF_SIGMOID, straight=37.0)

ACTIVATIONS = MappingProxyType({a.name: a for a in (RELU, GELU, GELU_TANH, SILU, SOFTPLUS, TANH, SIGMOID)})
