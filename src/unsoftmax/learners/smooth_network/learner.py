"""The learner of two-layer networks with a smooth activation, plain or gated, behind one-row queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.gated_network.find import find_gated_network
from unsoftmax.learners.gated_network.fit import GatedFit
from unsoftmax.learners.smooth_network.asks import Asks, rows_of
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.learners.smooth_network.network_fit import FoundNetwork, NetworkFit
from unsoftmax.ledger import Asker
from unsoftmax.models import GatedNetwork, Network
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import LeastSquares, RefinementOptions, likely_errors

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


_PLAIN = Claim(
    title="A two-layer network with a smooth activation from values",
    source="this library",
    assumptions=_ASSUMPTIONS,
    queries=QueryCount("40 J(d + 2) + 400 d + 4000", "upper", _queries),
    recovers="activation, weights and biases of every neuron, and the affine part",
    symmetry="order and reflection of neurons",
)
_GATED = replace(
    _PLAIN,
    title="A gated two-layer network from values",
    queries=QueryCount("80 J(d + 2) + 400 d + 4000", "upper", lambda size: 2 * _queries(size)),
    recovers="activation, gate, up and down rows of every unit, biases and constant",
    symmetry="order of units; one scale a unit",
)


@dataclass(frozen=True)
class SmoothNetworkLearner:
    """Recovers g(x) = Uᵀφ(A x + b) + L x + c from values, φ one of GELU (both forms), SiLU, tanh, softplus.

    Claim: exact in float64. Queries: about 12 J(d + 2) for single numbers, 2 J(d + 1 + m)/m for vectors;
    second differences set the price. Assumes: see `claim`. Recovers: neurons up to order and reflection; a
    sigmoid network comes as the tanh network of the same function. Fails when: there are more than 0.6·d(d +
    1)/2 neurons (UNRESOLVED), or two neurons nearly coincide.
    """

    family: ClassVar[Family] = Family.NETWORK
    claim: ClassVar[Claim] = _PLAIN

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        return _learned(asker, self.claim, find_network, NetworkFit.of, rng)


@dataclass(frozen=True)
class GatedNetworkLearner:
    """Recovers g(x) = Dᵀ(φ(G x + g) ∘ (U x + u)) + c from values (SwiGLU, GEGLU).

    Claim: exact in float64. Queries: about 2 J(2d + 2 + m)/m for vectors. Assumes: see `claim`. Recovers:
    units up to order and the scale that up and down rows share. Fails when: there are more than 0.2·d(d +
    1)/2 units.
    """

    family: ClassVar[Family] = Family.NETWORK
    claim: ClassVar[Claim] = _GATED

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        return _learned(asker, self.claim, find_gated_network, GatedFit.of, rng)


Model = TypeVar("Model", Network, GatedNetwork)


class _Fit(LeastSquares[Array], Protocol[Model]):
    def state(self, network: Model) -> Array: ...
    def network(self, state: Array) -> Model: ...


def _learned(
    asker: Asker,
    claim: Claim,
    find: Callable[[Asks, np.random.Generator], FoundNetwork[Model]],
    fit_of: Callable[[Model, Array, Array], _Fit[Model]],
    rng: np.random.Generator,
) -> Learned:
    """The network, with a bound from answers to which it was not fitted: as many other points, spread over
    the same sizes. One step of the fit on these alone moves the parameters by their error, to first order."""
    asks = rows_of(asker)
    with asker.phase("network"):
        found = find(asks, rng)
    if not found.precise:
        raise Unresolved(
            f"the joint fit of all neurons stops at {found.residual:.2g}, while answers are exact to "
            f"{found.noise:.1g}; another seed may start it elsewhere"
        )
    network, points = found.network, found.points
    fresh = spread_points(rng, len(points), points.shape[1], float(np.linalg.norm(points, axis=1).max()))
    with asker.phase("error bound"):
        fit = fit_of(network, fresh, asks(fresh))
    state = fit.state(network)
    errors = likely_errors(fit, state, rng, _ONE_STEP, _DRAWS)
    off = max(EPS, *(network.distance(fit.network(fit.moved(state, error))) for error in errors))
    whole = network.followed(np.ones(1)) if asker.outputs is None else network
    return Learned(whole, claim, error_bound=_SAFETY * off)
