"""The learner of two-layer ReLU networks that compute in float32, one number a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.ledger import Asker
from unsoftmax.models import Network, ReluNetwork
from unsoftmax.models.canonical_network import CanonicalNetwork
from unsoftmax.outcomes import Unresolved

__all__ = ["ComputedNetworkLearner"]

_LOOKED = 64  # rows at which rounding is measured
_FRESH = 256
# fresh deviations over the rounding, of which nearby rows share a part: right networks left 0.9 to 1.8, the
# most where rows are short
_EXPLAINED = 3.0
# of the unit of the format: the last step alone rounds by so much; rows whose sums are exact show less
_LAST_STEP = 0.25
_DRAWS = 60
_LEVEL = 0.99
_FACTOR = 2.5  # roundings of one row are not independent, and few draws stand for the quantile


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
    departs="no theorem of the paper speaks of it",
)


@dataclass(frozen=True)
class ComputedNetworkLearner:
    """Recovers g(x) = Σ u_k relu(a_k·x + b_k) + l·x + c of a network that computes in float32.

    Claim: the deviation from the network's float64 copy is about that of the network itself. Queries: see
    `claim`. Recovers: the canonical form with a 99 % bound. Fails when: rows are bounded, or neurons are
    faint beside the others; it says so (Unresolved).
    """

    family: ClassVar[Family] = Family.RELU_NETWORK
    format: FloatFormat = FloatFormat.FLOAT32

    @property
    def claim(self) -> Claim:
        return _CLAIM

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed_block.asking import local_rounding, stored_sequences, usual_size
        from unsoftmax.learners.computed_network.find import find_network
        from unsoftmax.solvers.joint_refinement import RefinementOptions, Spread

        numbers = asker.outputs is None and self.format is FloatFormat.FLOAT32
        if not numbers or asker.input_bound is not None:
            raise Unresolved(
                "networks that compute in a short format are recovered from float32 numbers, and rows of any "
                "size; ask a float64 copy of the target"
            )
        sequences = stored_sequences(asker, self.format)

        def ask(points: Array) -> Array:
            return sequences(points[:, None])[:, None]

        def rounding(points: Array, answers: Array) -> float:
            some = points[:_LOOKED, None]
            seen = local_rounding(sequences, some, np.ones(len(some)), self.format, rng)
            return max(seen, _LAST_STEP * self.format.unit * rms(answers))

        with asker.phase("network"):
            found = find_network(ask, asker.width, rounding, rng)
        with asker.phase("fresh rows"):
            points = self.format.store(rng.standard_normal((_FRESH, asker.width)))
            network = found.fit.network(found.inner, scalar=False)
            answers = ask(points)
            noise = rounding(points, answers)
            fresh = usual_size(answers - network(points)) / noise
        if max(fresh, found.left) > _EXPLAINED:
            raise Unresolved(
                f"{len(found.inner)} neurons leave {max(fresh, found.left):.2g} times the rounding of the "
                "answers"
            )
        options = RefinementOptions(dense_limit=6000)
        spread = Spread.of(found.fit, found.inner, gauge=len(found.inner), options=options)
        biased = bool(found.inner[:, -1].any())

        def folded(inner: Array) -> ReluNetwork:
            return _folded(found.fit.network(inner, scalar=True), biased)

        model = folded(found.inner)
        steps = spread.draw(_DRAWS, rng)
        far = [model.distance(folded(found.fit.moved(found.inner, step))) for step in steps]
        return Learned(
            model,
            _CLAIM,
            error_bound=float(_FACTOR * np.quantile(far, _LEVEL)),
            note=f"computed in {self.format}: answers to rows of size one are off by {noise:.1g}, and the "
            "error bound holds with 99 % confidence",
        )


def _folded(network: Network, biased: bool) -> ReluNetwork:
    """The canonical form, without biases and constant where there are none."""
    linear = np.zeros(network.width) if network.linear is None else network.linear
    b, c = (network.b, float(np.asarray(network.c))) if biased else (0.0 * network.b, 0.0)
    return ReluNetwork.from_folds(CanonicalNetwork.of_neurons(network.A, b, network.U, linear, c))
