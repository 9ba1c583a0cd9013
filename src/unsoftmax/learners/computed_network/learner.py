"""The learner of two-layer ReLU networks that compute in float32, one number per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.ledger import Asker

__all__ = ["ComputedNetworkLearner", "bound_of"]

_DRAWS = 60  # the 99 % quantile of 60 lies between the two largest; a factor covers what so few leave open
_LEVEL = 0.99  # the confidence that bounds of computed answers state
# roundings of one row are not independent, and few draws stand for the quantile; of 240 networks one error
# was 2.6 quantiles, all others were at most 1.3
_FACTOR = 4.0


def _queries(size: Size) -> int:
    """24 rounds of two circles with 8192 points at most, slopes of every kink, and the points of the fit."""
    d, m = size.width, size.neurons
    return 24 * 2 * 8192 + 24 * m * (d + 2) + 4000


_CLAIM = Claim(
    title="A two-layer ReLU network behind arithmetic that rounds at every step",
    source="this library",
    assumptions=(
        Assumption("every step inside rounds", "second differences of rows nearby against their last digits"),
        Assumption("rows of any size may be sent", "the asker's bound"),
        Assumption(
            "the function is a sum of folds",
            "residual of the joint fit, and of fresh rows, over the rounding",
        ),
    ),
    queries=QueryCount("40 to 120 m(d + 2)", "upper", _queries),
    recovers="the canonical form, up to the network's own rounding; the bound is a 99 % one",
    symmetry="signs and order of folds; a plain network of the same function follows (plain_network)",
)


@dataclass(frozen=True)
class ComputedNetworkLearner:
    """Recovers g(x) = Σ u_k relu(a_k·x + b_k) + l·x + c of a network that computes in float32.

    Claim: the deviation from the network's float64 copy is about that of the network itself. Queries: see
    `claim`. Recovers: the canonical form with a 99 % bound. Fails when: rows are bounded, or neurons are
    faint beside the others; it says so (Unresolved).
    """

    family: ClassVar[Family] = Family.RELU_NETWORK
    claim: ClassVar[Claim] = _CLAIM
    format: FloatFormat = FloatFormat.FLOAT32

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed_network.one_row import learn_one_row

        found = learn_one_row(asker, self.format, rng)
        far = [found.model.distance(changed) for changed in found.draws(_DRAWS, rng)]
        return Learned(
            found.model,
            _CLAIM,
            error_bound=bound_of(far, self.format),
            note=f"computed in {self.format}: answers to rows of size one are off by {found.rounding:.1g}, "
            "and the error bound holds with 99 % confidence",
        )


def bound_of(distances: Sequence[float], held: FloatFormat) -> float:
    """The 99 % bound on an error, from distances of models drawn from the covariance of a fit. One rounding
    of the format is added: weights inside the target round alike in every answer."""
    return float(_FACTOR * np.quantile(distances, _LEVEL)) + held.unit
