"""Joint refinement of a network: the inner weights move, the outer ones are solved for exactly at every
step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Self, TypeVar

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.models.networks.network import Network
from unsoftmax.models.networks.row_network import RowNetwork
from unsoftmax.models.parts import Activation
from unsoftmax.solvers.least_squares.joint_refinement import Inverse, Linearisation, RefinementOptions, refine

__all__ = ["FoundNetwork", "NetworkFit", "ProjectedJacobian", "fit_network"]

_PRECISE = 1e-10  # rms of the fit, relative to the answers, from which a network is taken as found
# what reflections may leave of a linear part, relative to the neurons: points that are off by a thousandth
# leave 3e-3. The fit without a linear part must then be about as good as the one with it
_REFLECTED, _AS_GOOD = 0.05, 3.0


Model = TypeVar("Model", bound=RowNetwork)


@dataclass(frozen=True)
class FoundNetwork(Generic[Model]):
    """network: with vector answers. residual: rms of the fit. noise: of the answers, absolute. points,
    answers: what it was fitted to."""

    network: Model
    residual: float
    noise: float
    points: Array
    answers: Array

    @property
    def precise(self) -> bool:
        """Whether the fit ends near the rounding of the answers: one that stops far above it is a local
        minimum, or has another activation."""
        return self.residual <= max(_PRECISE * rms(self.answers), 30.0 * self.noise)


@dataclass(frozen=True)
class NetworkFit:
    """Least squares for answers = features(inner)·weights, with the weights eliminated (variable projection).

    State: inner (J, k + 1), the rows [a_j, b_j]. The features are φ(a_j·x + b_j), a constant and, with
    `skip`, x itself. The Jacobian leaves out how the projection moves, which vanishes with the residual.
    """

    activation: Activation
    points: Array
    answers: Array
    skip: bool

    @classmethod
    def of(cls, network: Network, points: Array, answers: Array) -> Self:
        """For a network like this one."""
        return cls(network.activation, points, answers, network.linear is not None)

    @property
    def outputs(self) -> int:
        """Numbers that a point fixes."""
        return int(self.answers.shape[1])

    def _extended(self) -> Array:
        return np.column_stack([self.points, np.ones(len(self.points))])

    def features(self, inner: Array) -> Array:
        """(n, J + 1), with the points themselves as further columns where a linear part is wanted."""
        X = self._extended()
        return np.column_stack([self.activation(X @ inner.T), X if self.skip else X[:, -1:]])

    def weights(self, inner: Array) -> Array:
        """The outer weights that fit best: those of the neurons, of the linear part, and the constant."""
        return np.asarray(np.linalg.lstsq(self.features(inner), self.answers, rcond=1e-15)[0])

    def residual(self, inner: Array, /) -> Array:
        return np.asarray((self.features(inner) @ self.weights(inner) - self.answers).ravel())

    def moved(self, inner: Array, step: Array, /) -> Array:
        return np.asarray(inner + step.reshape(inner.shape))

    def linearise(self, inner: Array, /) -> Linearisation:
        X = self._extended()
        slopes = self.activation.first(X @ inner.T)
        outer = self.weights(inner)[: len(inner)]
        return ProjectedJacobian(X, slopes, outer, np.linalg.qr(self.features(inner))[0])

    def state(self, network: Network) -> Array:
        """The inner weights of a network."""
        return np.column_stack([network.A, network.b])

    def network(self, state: Array) -> Network:
        """The network of these inner weights."""
        J, weights = len(state), self.weights(state)
        outer, rest = weights[:J], weights[J:]
        linear = rest[:-1] if self.skip else None
        return Network(state[:, :-1], outer, state[:, -1], rest[-1], linear, activation=self.activation)


def fit_network(
    fit: NetworkFit, inner: Array, noise: float, options: RefinementOptions
) -> FoundNetwork[Network]:
    """Joint refinement with a linear part; then without, where reflected neurons explain it."""
    with_skip = _refined(fit, inner, noise, options)
    reflected = with_skip.network.without_linear(_REFLECTED)
    if reflected is None:
        return with_skip
    plain = replace(fit, skip=False)
    found = _refined(plain, plain.state(reflected), noise, options)
    return found if found.precise or found.residual <= _AS_GOOD * with_skip.residual else with_skip


def _refined(
    fit: NetworkFit, inner: Array, noise: float, options: RefinementOptions
) -> FoundNetwork[Network]:
    refined = refine(fit, inner, options)
    residual = refined.rms[-1] if np.isfinite(refined.rms[-1]) else np.inf
    return FoundNetwork(fit.network(refined.state), residual, noise, fit.points, fit.answers)


@dataclass(frozen=True)
class ProjectedJacobian:
    """J = (1 - Π) [slopes_j x ⊗ u_j], so that JᵀJ = (U Uᵀ ⊗ 1) ∘ Cᵀ(1 - Π)C has a cheap form: one row a
    point, whatever m."""

    points: Array
    slopes: Array
    outer: Array
    basis: Array

    @property
    def unknowns(self) -> int:
        return int(self.slopes.shape[1] * self.points.shape[1])

    def _beside(self, values: Array) -> Array:
        return np.asarray(values - self.basis @ (self.basis.T @ values))

    def _columns(self) -> Array:
        """(n, J, k + 1), projected."""
        columns = (self.slopes[:, :, None] * self.points[:, None]).reshape(len(self.points), -1)
        return self._beside(columns)

    def forward(self, step: Array, /) -> Array:
        inner = step.reshape(-1, self.points.shape[1])
        return self._beside((self.slopes * (self.points @ inner.T)) @ self.outer).ravel()

    def backward(self, residual: Array, /) -> Array:
        back = self._beside(residual.reshape(len(self.points), -1)) @ self.outer.T * self.slopes
        return np.asarray((back.T @ self.points).ravel())

    def normal(self) -> Array:
        columns, width = self._columns(), self.points.shape[1]
        gram = columns.T @ columns
        J = self.slopes.shape[1]
        weights = self.outer @ self.outer.T
        return np.asarray(
            (gram.reshape(J, width, J, width) * weights[:, None, :, None]).reshape(J * width, -1)
        )

    @cached_property
    def _blocks(self) -> Array:
        """(J, k + 1, k + 1): the blocks of JᵀJ, one a neuron at a time; all columns at once are J times the
        points."""
        J, width = self.slopes.shape[1], self.points.shape[1]
        blocks = np.empty((J, width, width))
        for j, power in enumerate((self.outer**2).sum(axis=1)):
            columns = self._beside(self.slopes[:, j, None] * self.points)
            blocks[j] = power * (columns.T @ columns)
        return blocks

    def diagonal(self) -> Array:
        return np.asarray(np.einsum("jaa->ja", self._blocks).ravel())

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        """One block a neuron."""
        J, width, blocks = self.slopes.shape[1], self.points.shape[1], self._blocks
        blocks = blocks + (damping.reshape(J, width) + 1e-14 * np.einsum("jaa->ja", blocks))[
            :, :, None
        ] * np.eye(width)
        inverses = np.linalg.inv(blocks)
        return lambda vector: np.einsum("jab,jb->ja", inverses, vector.reshape(J, width)).ravel()
