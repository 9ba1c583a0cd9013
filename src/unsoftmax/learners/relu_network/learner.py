"""A two-layer ReLU network from value queries alone: any number of neurons, dependent or not, with or without
biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.relu_network.circle import RowFunction
from unsoftmax.learners.relu_network.found import NetworkFound
from unsoftmax.learners.relu_network.row_tests import check_pieces, look_along_rays, one_row_function
from unsoftmax.learners.relu_network.search import HYPERPLANE_TEST, Search
from unsoftmax.ledger import Asker
from unsoftmax.models import CanonicalNetwork, ReluNetwork
from unsoftmax.models.networks.relu_network import rows_to_certify
from unsoftmax.outcomes import Unresolved

__all__ = ["HYPERPLANE_TEST", "NetworkFound", "ReluNetworkLearner", "checks_of_network", "usual_for_network"]


def _queries(size: Size) -> int:
    """One line: a gradient on every piece of it, kinks found by bisection, a few gradients measured again."""
    d, m = size.width, size.neurons
    return (m + 1) * (d + 1) + 8 * m + 4 * d + 120 + int(0.08 * m * d)


def usual_for_network(size: Size) -> int:
    """Measured: 33 queries and 4.2 a kink find the kinks."""
    d, m = size.width, size.neurons
    return (m + 1) * max(1, d - (1 if size.biased else 2)) + int(4.2 * m) + 58


def checks_of_network(size: Size) -> int:
    """Fresh rows that look for bumps: the fewer, the more rows of gradients have looked already."""
    if not size.biased:
        return 34
    paid = (size.neurons + 1) * size.width
    return int(35 + max(24.0, 150.0 - paid / 16.0, min(150.0, paid / 100.0)))


def _verification(size: Size) -> int:
    parameters = (size.neurons + 1) * (size.width + int(size.biased))
    return checks_of_network(size) + rows_to_certify(parameters, biased=size.biased)


_CLAIM = Claim(
    title="A two-layer ReLU network at little more than its parameters",
    source="this library; completes section 4.1 of arXiv 2601.16873, which assumes such a learner",
    assumptions=(
        Assumption(
            "one-row answers are piecewise linear",
            "second differences at random rows, then the search for kinks itself",
        ),
        Assumption("answers are exact up to rounding", "collinear answers 1e-10 apart"),
        Assumption(
            "no bump hides between all points asked",
            "fresh random rows; the certificate states the smallest bump they would have met",
        ),
    ),
    queries=QueryCount(
        "1.08 (m + 1)(d + 1) + 8m + 4d + 120 a line; one line usually, four at most",
        "upper",
        _queries,
        usual_for_network,
        attempts=4,
    ),
    recovers=(
        "the canonical form Σ c_j |u_j·x + β_j| + l·x + l0: number of kinks, directions, offsets, weights, "
        "affine part"
    ),
    symmetry="signs of (u_j, β_j) and order; a plain network of the same function follows (plain_network)",
    verification=_verification,
)


@dataclass(frozen=True)
class ReluNetworkLearner:
    """Recovers g(x) = Σ u_k relu(a_k·x + b_k) + l·x + c from g's values.

    Claim: exact in float64. Queries: about 1.1 m(d + 2). Assumes: nothing on the neurons; parallel, opposite,
    duplicate and cancelling ones are what they are as a function. Recovers: the canonical form. Departs from
    the paper: it assumes this learner. Fails when: a bump is narrower than the certificate's blind spot, or
    neurons differ by more than nine decades; faint ones, and hyperplanes closer than 1e-7, may be given up or
    as one, and the certificate says so.

    polish: largest share of gradients measured twice; goal: the relative error that polishing stops at.
    thoroughness: multiplies the fresh rows that look for bumps, and divides the width of the bumps they miss.
    max_neurons: where the search for kinks gives up.
    """

    family: ClassVar[Family] = Family.RELU_NETWORK
    claim: ClassVar[Claim] = _CLAIM
    polish: float = 0.03
    goal: float = 1e-10
    thoroughness: float = 1.0
    max_neurons: int = 2048

    def __post_init__(self) -> None:
        for name, value, least in (
            ("polish", self.polish, 0.0),
            ("goal", self.goal, 0.0),
            ("max_neurons", self.max_neurons, 1),
        ):
            if not value >= least:
                raise UsageError(f"{name} must be at least {least}, not {value!r}")
        if not 0.0 < self.thoroughness <= 1e6:
            raise UsageError(
                f"thoroughness must be above 0 and at most 1e6, not {self.thoroughness!r}; 1 is the default, "
                "10 finds ten times narrower bumps"
            )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        found = self.find(asker, rng)
        model = ReluNetwork.from_folds(found.folds.tidy())
        return Learned(model, self.claim, error_bound=found.error_bound, caveat=found.caveat)

    def find(self, asker: Asker, rng: np.random.Generator) -> NetworkFound:
        """The network that one-row queries show."""
        function, d = one_row_function(asker), asker.width
        bound = asker.input_bound
        unit = 1.0 if bound is None else min(1.0, bound / (8.0 * np.sqrt(d)))
        with asker.phase("shape"):
            check_pieces(function, d, unit, rng)
            shape = look_along_rays(function, d, unit, np.inf if bound is None else bound, rng)
        if shape.homogeneous and d == 1:
            return self._one_dimension(asker, function, unit)
        if not shape.homogeneous and bound is not None:
            raise Unresolved(
                "one-row answers are not homogeneous, so the network has biases, and rows are limited to "
                f"norm {bound:.3g}: its kinks are found along whole lines only; raise or drop input_bound"
            )
        return Search(self, asker, function, not shape.homogeneous, shape.unit, rng).run()

    def _one_dimension(self, asker: Asker, function: RowFunction, unit: float) -> NetworkFound:
        """Homogeneous on a line: two slopes, each measured at three sizes, whose spread is the rounding."""
        sizes = unit * np.array([1.0, 0.83, 0.71])
        with asker.phase("gradients"):
            slopes = function(np.concatenate([sizes, -sizes])[:, None]).reshape(2, 3) / sizes
        right, left = slopes.mean(axis=1)
        noise = float(np.ptp(slopes, axis=1).max())
        fold = (right + left) / 2
        there = int(abs(fold) > 4.0 * (noise + EPS * (abs(right) + abs(left))))
        folds = CanonicalNetwork(
            np.full((there, 1), abs(fold)),
            np.zeros(there),
            np.full(there, np.sign(fold)),
            np.array([(right - left) / 2]),
            0.0,
        )
        return NetworkFound(
            folds,
            8.0 * EPS + 8.0 * noise / max(float(np.hypot(right, left)), np.finfo(float).tiny),
            0.0,
            np.inf,
        )
