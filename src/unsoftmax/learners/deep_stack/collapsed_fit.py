"""Joint refinement of the collapsed layer: all neurons of all layers on c0 at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.stack_fit import network_blocks
from unsoftmax.learners.deep_stack.stack_state import LayerState
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork, Network
from unsoftmax.solvers.deep_stack.neurons import (
    Collapsed,
    GatedNeurons,
    Neurons,
    PlainNeurons,
    beside,
    without_trifles,
)
from unsoftmax.solvers.least_squares.factored_jacobian import FactoredJacobian, Factors
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["refine_collapsed"]

_OPTIONS = RefinementOptions(
    iterations=25, damping=1e-8, least_damping=1e-12, improvement=0.05, dense_limit=9000, repeat=0.1
)


@dataclass(frozen=True, eq=False)
class _CollapsedFit:
    """c0 = P·(network(n) + path·n) for rows n (B, d)."""

    n: Array
    c0: Array

    def residual(self, state: LayerState, /) -> Array:
        values = state.network(self.n)
        if state.path is not None:
            values = values + self.n @ state.path.T
        return np.asarray((beside(values, self.n) - self.c0).ravel())

    def moved(self, state: LayerState, step: Array, /) -> LayerState:
        cuts = np.cumsum([array.size for array in state.arrays])[:-1]
        steps = [part.reshape(a.shape) for part, a in zip(np.split(step, cuts), state.arrays, strict=True)]
        return state.moved(steps)

    def linearise(self, state: LayerState, /) -> FactoredJacobian:
        d = self.n.shape[1]
        across = np.eye(d) - self.n[:, :, None] * self.n[:, None] / d
        blocks = network_blocks(state, self.n, across)
        if state.path is not None:
            blocks.insert(0, Factors(across, self.n))
        return FactoredJacobian(sum(block.size for block in blocks), lambda: iter([blocks]))


def refine_collapsed(collapsed: Collapsed, n: Array, c0: Array, faint: float) -> Collapsed:
    """The same layer, as well as c0 tells it; a path or constant that is `faint` beside what all neurons
    write is left out."""
    neurons = collapsed.neurons
    network: Network
    if isinstance(neurons, GatedNeurons):
        network = GatedNetwork(neurons.gate, neurons.up, collapsed.written.T, neurons.activation)
    else:
        network = FeedForward(
            neurons.inner, neurons.bias, collapsed.written.T, collapsed.constant, neurons.activation
        )
    fit = _CollapsedFit(n, c0)
    state = refine(fit, LayerState(collapsed.path, network), _OPTIONS).state
    part = state.network
    found: Neurons
    if isinstance(part, GatedNetwork):
        found, written, constant = (
            GatedNeurons(part.gate, part.up, part.activation),
            part.down.T,
            collapsed.constant,
        )
    else:
        found, written = PlainNeurons(part.inner, part.inner_bias, part.activation), part.outer.T
        constant = part.outer_bias
    return without_trifles(Collapsed(found, written, state.path, constant, 0.0), n, c0, faint)
