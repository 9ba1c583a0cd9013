"""Joint refinement of a gated network: gates and up rows move, the down rows are solved for exactly at every
step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.network_fit import ProjectedJacobian
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.parts import Activation
from unsoftmax.solvers.least_squares.joint_refinement import Linearisation

__all__ = ["GatedFit"]


@dataclass(frozen=True)
class GatedFit:
    """Least squares for answers = features·down + c with features φ(g·x + β)(u·x + υ) and the outer weights
    eliminated.

    State: (2J, k + 1), the rows [g, β] and then [u, υ]. Every move puts the up rows back to unit length:
    their scale is free.
    """

    activation: Activation
    points: Array
    answers: Array

    @classmethod
    def of(cls, network: GatedNetwork, points: Array, answers: Array) -> Self:
        """For a network like this one."""
        return cls(network.activation, points, answers)

    def _extended(self) -> Array:
        return np.column_stack([self.points, np.ones(len(self.points))])

    def _halves(self, state: Array) -> tuple[Array, Array]:
        return np.asarray(state[: len(state) // 2]), np.asarray(state[len(state) // 2 :])

    def features(self, state: Array) -> Array:
        """(n, J + 1): the units, and a constant."""
        X = self._extended()
        gate, up = self._halves(state)
        return np.column_stack([self.activation(X @ gate.T) * (X @ up.T), np.ones(len(X))])

    def weights(self, state: Array) -> Array:
        """The down rows and the constant that fit best."""
        return np.asarray(np.linalg.lstsq(self.features(state), self.answers, rcond=1e-15)[0])

    def residual(self, state: Array, /) -> Array:
        return np.asarray((self.features(state) @ self.weights(state) - self.answers).ravel())

    def moved(self, state: Array, step: Array, /) -> Array:
        moved = state + step.reshape(state.shape)
        gate, up = self._halves(moved)
        return np.concatenate([gate, up / np.linalg.norm(up, axis=1, keepdims=True)])

    def linearise(self, state: Array, /) -> Linearisation:
        X = self._extended()
        gate, up = self._halves(state)
        z, lift = X @ gate.T, X @ up.T
        slopes = np.column_stack([self.activation.first(z) * lift, self.activation(z)])
        down = self.weights(state)[:-1]
        return ProjectedJacobian(
            X, slopes, np.concatenate([down, down]), np.linalg.qr(self.features(state))[0]
        )

    def state(self, network: GatedNetwork) -> Array:
        """The state of a network."""
        gate = np.column_stack([network.gate, network.gate_bias])
        up = np.column_stack([network.up, network.up_bias])
        return np.concatenate([gate, up / np.linalg.norm(up, axis=1, keepdims=True)])

    def network(self, state: Array) -> GatedNetwork:
        """The network of this state."""
        gate, up = self._halves(state)
        weights = self.weights(state)
        parts = (gate[:, :-1], up[:, :-1], weights[:-1], gate[:, -1], up[:, -1], weights[-1])
        return GatedNetwork(*parts, activation=self.activation)
