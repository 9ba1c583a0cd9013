"""Joint refinement of the heads of all layers, on prompts of several lengths; everything else is known.

Jacobians come from differences of float64 states: an error of 1e-8 of the Jacobian costs an iteration, and
none of the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model import Attention, DecoderLayer, Rotary
from unsoftmax.models.language_model.forward import decode
from unsoftmax.models.parts import Norm
from unsoftmax.solvers.joint_refinement import DenseJacobian

__all__ = ["DecoderFit", "DecoderState"]

_STEP = 3e-8  # relative to entries of size one: truncation and rounding of differences meet near 1e-8


@dataclass(frozen=True, eq=False)
class DecoderState:
    """attentions: of all layers. log_theta: of rotary positions."""

    attentions: tuple[Attention, ...]
    log_theta: float

    @property
    def flat(self) -> Array:
        """All numbers in one vector."""
        arrays = [
            a.ravel() for part in self.attentions for a in (part.query, part.key, part.value, part.output)
        ]
        return np.concatenate([*arrays, [self.log_theta]])

    def at(self, flat: Array) -> DecoderState:
        """The state of such a vector."""
        place, parts = 0, []
        for part in self.attentions:
            arrays = []
            for array in (part.query, part.key, part.value, part.output):
                arrays.append(flat[place : place + array.size].reshape(array.shape))
                place += array.size
            query, key, value, output = arrays
            parts.append(replace(part, query=query, key=key, value=value, output=output))
        return DecoderState(tuple(parts), float(flat[-1]))


@dataclass(frozen=True, eq=False)
class DecoderFit:
    """Least squares over prompts, one array (B, N, d) a length, and their measured states."""

    layers: tuple[DecoderLayer, ...]
    final_norm: Norm
    prompts: Sequence[Array]
    seen: Array

    def _states(self, state: DecoderState) -> Array:
        pairs = zip(self.layers, state.attentions, strict=True)
        layers = tuple(replace(layer, attention=part) for layer, part in pairs)
        rotary = Rotary(float(np.exp(state.log_theta)))
        streams = [decode(layers, rows, rotary) for rows in self.prompts]
        return self.final_norm(np.concatenate(streams))

    def residual(self, state: DecoderState, /) -> Array:
        return np.asarray((self._states(state) - self.seen).ravel())

    def moved(self, state: DecoderState, step: Array, /) -> DecoderState:
        return state.at(state.flat + step)

    def linearise(self, state: DecoderState, /) -> DenseJacobian:
        flat, middle = state.flat, self._states(state).ravel()
        columns = np.empty((len(middle), len(flat)))
        for k in range(len(flat)):
            moved = flat.copy()
            moved[k] += _STEP
            columns[:, k] = (self._states(state.at(moved)).ravel() - middle) / _STEP
        return DenseJacobian(columns)
