"""The learner of two-layer networks with a smooth activation, plain or gated, behind one-row queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.gated_network.find import FoundGatedNetwork, find_gated_network
from unsoftmax.learners.gated_network.fit import GatedFit
from unsoftmax.learners.smooth_network.asks import Asks, rows_of
from unsoftmax.learners.smooth_network.find import FoundNetwork, find_network
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.learners.smooth_network.network_fit import NetworkFit, ends_at_rounding
from unsoftmax.ledger import Asker
from unsoftmax.models import GatedNetwork, Network
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.joint_refinement import LeastSquares, RefinementOptions, likely_errors

__all__ = ["GatedNetworkLearner", "SmoothNetworkLearner"]

_SAFETY = 20.0  # the step's own error, and that of the fresh answers
# of noise like theirs: once in 30 times one draw is 20 times smaller than an error of the same kind
_DRAWS = 3
_ONE_STEP = RefinementOptions(
    iterations=1, damping=1e-13, improvement=0.0, dense_limit=5200, inner_iterations=400, inner_tolerance=1e-3
)

_ASSUMPTIONS = (
    Assumption("the function has second derivatives", "second differences of two steps"),
    Assumption("answers are exact up to rounding", "answers 1e-9 apart"),
    Assumption("the activation is known", "second derivatives along every neuron fit one"),
)


def _queries(size: Size) -> int:
    return 40 * size.neurons * (size.width + 2) + 400 * size.width + 4000


@dataclass(frozen=True)
class SmoothNetworkLearner:
    """Recovers g(x) = Uᵀφ(A x + b) + L x + c from values, φ one of GELU (both forms), SiLU, tanh, softplus.

    Claim: exact in float64. Queries: about 12 J(d + 2) for single numbers, 2 J(d + 1 + m)/m for vectors;
    second differences set the price. Assumes: see `claim`. Recovers: neurons up to order and reflection; a
    sigmoid network comes as the tanh network of the same function. Fails when: there are more than 0.6·d(d +
    1)/2 neurons (UNRESOLVED), or two neurons nearly coincide.
    """

    family: ClassVar[Family] = Family.NETWORK

    @property
    def claim(self) -> Claim:
        return Claim(
            title="A two-layer network with a smooth activation from values",
            source="this library",
            assumptions=_ASSUMPTIONS,
            queries=QueryCount("40 J(d + 2) + 400 d + 4000", "upper", _queries),
            recovers="activation, weights and biases of every neuron, and the affine part",
            symmetry="order and reflection of neurons",
            departs="no theorem of the paper speaks of it",
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        asks = rows_of(asker)
        with asker.phase("network"):
            found = find_network(asks, rng)
        network = found.network
        fresh = _fresh_answers(asker, asks, found, rng)
        fit = NetworkFit(network.activation, *fresh, network.linear is not None)
        state = np.column_stack([network.A, network.b])
        bound = _bound(
            lambda moved: found.network.distance(fit.network(moved, scalar=False)), fit, state, rng
        )
        if asker.outputs is None:
            linear = None if network.linear is None else network.linear[:, 0]
            parts = (network.A, network.U[:, 0], network.b, np.asarray(network.c)[0], linear)
            network = Network(*parts, activation=network.activation)
        return Learned(network, self.claim, error_bound=bound)


@dataclass(frozen=True)
class GatedNetworkLearner:
    """Recovers g(x) = Dᵀ(φ(G x + g) ∘ (U x + u)) + c from values (SwiGLU, GEGLU).

    Claim: exact in float64. Queries: about 2 J(2d + 2 + m)/m for vectors. Assumes: see `claim`. Recovers:
    units up to order and the scale that up and down rows share. Fails when: there are more than 0.2·d(d +
    1)/2 units.
    """

    family: ClassVar[Family] = Family.NETWORK

    @property
    def claim(self) -> Claim:
        return Claim(
            title="A gated two-layer network from values",
            source="this library",
            assumptions=_ASSUMPTIONS,
            queries=QueryCount("80 J(d + 2) + 400 d + 4000", "upper", lambda size: 2 * _queries(size)),
            recovers="activation, gate, up and down rows of every unit, biases and constant",
            symmetry="order of units; one scale a unit",
            departs="no theorem of the paper speaks of it",
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        asks = rows_of(asker)
        with asker.phase("network"):
            found = find_gated_network(asks, rng)
        network = found.network
        fit = GatedFit(network.activation, *_fresh_answers(asker, asks, found, rng))
        state = fit.state(network)
        bound = _bound(
            lambda moved: found.network.distance(fit.network(moved, scalar=False)), fit, state, rng
        )
        if asker.outputs is None:
            network = GatedNetwork(
                network.gate,
                network.up,
                network.down[:, 0],
                network.gate_bias,
                network.up_bias,
                np.asarray(network.c)[0],
                activation=network.activation,
            )
        return Learned(network, self.claim, error_bound=bound)


def _fresh_answers(
    asker: Asker, asks: Asks, found: FoundNetwork | FoundGatedNetwork, rng: np.random.Generator
) -> tuple[Array, Array]:
    """As many other points, spread over the same sizes, and their answers. One step of the fit on these alone
    moves the parameters by their error, to first order."""
    _check_fit(found.residual, found.answers, found.noise)
    points = found.points
    fresh = spread_points(rng, len(points), points.shape[1], float(np.linalg.norm(points, axis=1).max()))
    with asker.phase("error bound"):
        return fresh, asks(fresh)


def _bound(
    off: Callable[[Array], float], fit: LeastSquares[Array], state: Array, rng: np.random.Generator
) -> float:
    """How far the parameters may be off, by answers to which they were not fitted. off: the distance of the
    network with another state."""
    errors = likely_errors(fit, state, rng, _ONE_STEP, _DRAWS)
    return _SAFETY * max(EPS, *(off(fit.moved(state, error)) for error in errors))


def _check_fit(residual: float, answers: Array, noise: float) -> None:
    if not ends_at_rounding(residual, answers, noise):
        raise Unresolved(
            f"the joint fit of all neurons stops at {residual:.2g}, while answers are exact to {noise:.1g}; "
            "another seed may start it elsewhere"
        )
