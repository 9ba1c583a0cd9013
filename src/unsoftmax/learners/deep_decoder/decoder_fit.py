"""Joint refinement of the heads of all layers, on prompts of several lengths; everything else is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_decoder.decoder_pass import DecoderPass
from unsoftmax.models.language_model import Attention, DecoderLayer
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian

__all__ = ["DecoderFit", "DecoderState"]


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
    """Least squares over prompts, one array (B, N, d) a length, and their measured states. Norms of layers
    have gain one; last_eps: of the final norm, which has too."""

    layers: tuple[DecoderLayer, ...]
    last_eps: float
    prompts: Sequence[Array]
    seen: Array

    def _passes(self, state: DecoderState) -> list[DecoderPass]:
        pairs = zip(self.layers, state.attentions, strict=True)
        layers = [replace(layer, attention=part) for layer, part in pairs]
        return [DecoderPass(layers, self.last_eps, rows, state.log_theta) for rows in self.prompts]

    def residual(self, state: DecoderState, /) -> Array:
        seen = np.concatenate([each.seen for each in self._passes(state)])
        return np.asarray((seen - self.seen).ravel())

    def moved(self, state: DecoderState, step: Array, /) -> DecoderState:
        return state.at(state.flat + step)

    def linearise(self, state: DecoderState, /) -> DenseJacobian:
        return DenseJacobian(np.concatenate([each.jacobian() for each in self._passes(state)]))
