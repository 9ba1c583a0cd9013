"""All parameters of a stack as one vector, and the stack of such a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork, Network
from unsoftmax.models.parts import RMSNorm
from unsoftmax.models.residual_stack import ResidualStack, StackLayer
from unsoftmax.solvers.deep_stack.neurons import GatedNeurons, Neurons

__all__ = ["LayerState", "StackState", "start_state"]

_GATED, _PLAIN = ("gate", "up", "down"), ("inner", "inner_bias", "outer", "outer_bias")
_LEAST_EPS = 1e-30  # no row but zero shows the difference from none
_FARTHEST = 5.0  # logarithm of the factor by which one step may change eps


@dataclass(frozen=True, eq=False)
class LayerState:
    """One layer behind norms of gain one. path: (d, d), or None. zeros: biases of a plain network that are
    zero and stay so."""

    path: Array | None
    network: Network
    zeros: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """Arrays of the network in the order of a step."""
        names = _GATED if isinstance(self.network, GatedNetwork) else _PLAIN
        return [name for name in names if name not in self.zeros]

    @property
    def arrays(self) -> list[Array]:
        """In the order of a step."""
        own = [getattr(self.network, name) for name in self.names]
        return own if self.path is None else [self.path, *own]

    def without(self, names: frozenset[str]) -> LayerState:
        """With these biases at zero."""
        zero: dict[str, Any] = {name: np.zeros_like(getattr(self.network, name)) for name in names}
        return LayerState(self.path, replace(self.network, **zero), names)

    def moved(self, steps: Sequence[Array]) -> LayerState:
        """With a step added to every array; up and down of gated neurons are given equal size."""
        new = [array + step for array, step in zip(self.arrays, steps, strict=True)]
        path = None if self.path is None else new.pop(0)
        moved: dict[str, Any] = dict(zip(self.names, new, strict=True))
        network = replace(self.network, **moved)
        if isinstance(network, GatedNetwork):
            factor = np.sqrt(np.linalg.norm(network.down, axis=0) / np.linalg.norm(network.up, axis=1))
            network = replace(network, up=factor[:, None] * network.up, down=network.down / factor)
        return LayerState(path, network, self.zeros)


@dataclass(frozen=True, eq=False)
class StackState:
    """eps: of every norm, the final one last where there is one. normed: whether there is one. least: the
    smallest mean square of a stream that a norm sees, one a norm. A step moves log(eps + least): answers are
    linear in an eps that is small beside all streams, and follow the logarithm of one that is not."""

    layers: tuple[LayerState, ...]
    eps: Array
    normed: bool
    least: Array

    @property
    def width(self) -> int:
        network = self.layers[0].network
        return int((network.gate if isinstance(network, GatedNetwork) else network.inner).shape[1])

    @property
    def unknowns(self) -> int:
        """Length of a step."""
        return sum(array.size for layer in self.layers for array in layer.arrays) + len(self.eps)

    @property
    def eps_steps(self) -> Array:
        """What eps of every norm changes by in a small step, over the step."""
        return np.asarray(self.eps + self.least)

    def moved(self, step: Array) -> StackState:
        """The state after a step."""
        at, layers = 0, []
        for layer in self.layers:
            steps = []
            for array in layer.arrays:
                steps.append(step[at : at + array.size].reshape(array.shape))
                at += array.size
            layers.append(layer.moved(steps))
        grown = self.eps_steps * np.expm1(np.clip(step[at:], -_FARTHEST, _FARTHEST))
        return replace(self, layers=tuple(layers), eps=np.maximum(self.eps + grown, _LEAST_EPS))

    def stack(self) -> ResidualStack:
        """The model of this state, with a final norm of gain one where there is one."""
        norms = iter([RMSNorm(np.ones(self.width), None, float(eps)) for eps in self.eps])
        layers = []
        for layer in self.layers:
            first = None if layer.path is None else next(norms)
            layers.append(StackLayer(next(norms), layer.network, first, layer.path))
        return ResidualStack(layers, next(norms) if self.normed else None)


def start_state(
    neurons: Neurons,
    written: Array,
    layers: NDArray[np.int64],
    paths: Array | None,
    constants: Array,
    eps: float,
    *,
    normed: bool,
) -> StackState:
    """The state of neurons that were divided into layers; constants: (L, d), what layers add to every row."""
    count = int(layers.max()) + 1
    found = []
    for number in range(count):
        own = layers == number
        network: Network
        if isinstance(neurons, GatedNeurons):
            network = GatedNetwork(neurons.gate[own], neurons.up[own], written[own].T, neurons.activation)
        else:
            network = FeedForward(
                neurons.inner[own], neurons.bias[own], written[own].T, constants[number], neurons.activation
            )
        found.append(LayerState(None if paths is None else paths[number], network))
    norms = count * (1 if paths is None else 2) + normed
    state = StackState(tuple(found), np.full(norms, eps), normed, np.zeros(norms))
    return state.moved(np.zeros(state.unknowns))
