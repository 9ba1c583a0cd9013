"""All parameters of a stack as one vector, and the stack of such a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork, Network
from unsoftmax.models.parts import RMSNorm
from unsoftmax.models.residual_stack import ResidualStack, StackLayer
from unsoftmax.solvers.deep_stack.neurons import GatedNeurons, Neurons

__all__ = ["LayerState", "StackState", "start_state"]


@dataclass(frozen=True, eq=False)
class LayerState:
    """One layer behind norms of gain one. path: (d, d), or None."""

    path: Array | None
    network: Network

    @property
    def arrays(self) -> list[Array]:
        """In the order of a step."""
        part = self.network
        first = [] if self.path is None else [self.path]
        if isinstance(part, GatedNetwork):
            return [*first, part.gate, part.up, part.down]
        return [*first, part.inner, part.inner_bias, part.outer, part.outer_bias]

    def moved(self, steps: Sequence[Array]) -> LayerState:
        """With a step added to every array; up and down of gated neurons are given equal size."""
        new = [array + step for array, step in zip(self.arrays, steps, strict=True)]
        path = None if self.path is None else new.pop(0)
        if isinstance(self.network, GatedNetwork):
            gate, up, down = new
            factor = np.sqrt(np.linalg.norm(down, axis=0) / np.linalg.norm(up, axis=1))
            return LayerState(
                path, replace(self.network, gate=gate, up=factor[:, None] * up, down=down / factor)
            )
        inner, inner_bias, outer, outer_bias = new
        return LayerState(
            path,
            replace(self.network, inner=inner, inner_bias=inner_bias, outer=outer, outer_bias=outer_bias),
        )


@dataclass(frozen=True, eq=False)
class StackState:
    """log_eps: of every norm, the final one last where there is one. normed: whether there is one."""

    layers: tuple[LayerState, ...]
    log_eps: Array
    normed: bool

    @property
    def width(self) -> int:
        network = self.layers[0].network
        return int((network.gate if isinstance(network, GatedNetwork) else network.inner).shape[1])

    @property
    def unknowns(self) -> int:
        """Length of a step."""
        return sum(array.size for layer in self.layers for array in layer.arrays) + len(self.log_eps)

    def moved(self, step: Array) -> StackState:
        """The state after a step."""
        at, layers = 0, []
        for layer in self.layers:
            steps = []
            for array in layer.arrays:
                steps.append(step[at : at + array.size].reshape(array.shape))
                at += array.size
            layers.append(layer.moved(steps))
        return StackState(tuple(layers), self.log_eps + step[at:], self.normed)

    def stack(self) -> ResidualStack:
        """The model of this state, with a final norm of gain one where there is one."""
        norms = iter([RMSNorm(np.ones(self.width), None, float(eps)) for eps in np.exp(self.log_eps)])
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
    state = StackState(tuple(found), np.full(norms, np.log(eps)), normed)
    return state.moved(np.zeros(state.unknowns))
