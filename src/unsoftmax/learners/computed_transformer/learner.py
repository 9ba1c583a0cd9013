"""The learner of one-layer Transformers that compute in float32, one number per sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.computed.learner import rounding_of
from unsoftmax.learners.computed_network.learner import ComputedNetworkLearner, bound_of
from unsoftmax.learners.row_tests import refuse_other_networks
from unsoftmax.ledger import Asker

__all__ = ["ComputedTransformerLearner"]

_DRAWS = 60  # as for networks: the 99 % quantile lies between the two largest, and a factor stands above it
_NETWORK = ComputedNetworkLearner().claim.queries


def _queries(size: Size) -> int:
    """The network's; pairs for the start, and sequences for the fit: 1.4 and 4 for each unknown of scores."""
    d = size.width
    return _NETWORK(size) + 6 * d * (d + 1) + 2000


_CLAIM = Claim(
    title="A one-layer Transformer behind arithmetic that rounds at every step",
    source="this library",
    assumptions=(
        *ComputedNetworkLearner().claim.assumptions,
        Assumption(
            "attention comes before the network, perhaps with a skip connection",
            "residual of the fit, and of fresh sequences of 2 to 17 rows, over the rounding",
        ),
    ),
    queries=QueryCount("the network's, and 6 d(d + 1) + 2000", "upper", _queries),
    recovers="W, w0, the skip connection's factor and the network, up to their own rounding; a 99 % bound",
    symmetry="none for W and w0; the network up to what its function determines",
    rows=17,
)


@dataclass(frozen=True)
class ComputedTransformerLearner:
    """Recovers f(X) = g(Σ α_i x_i + residual·x_N) of a target that computes in float32.

    Claim: the deviation from the target's float64 copy is about that of the target itself. Queries: see
    `claim`. Recovers: everything that the function determines, with a 99 % bound. Fails when: the network's
    learner does, or the network turns too often along rows for one answer to tell a score; it says so
    (Unresolved).
    """

    family: ClassVar[Family] = Family.TRANSFORMER
    claim: ClassVar[Claim] = _CLAIM
    format: FloatFormat = FloatFormat.FLOAT32

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed_block.asking import stored_sequences
        from unsoftmax.learners.computed_network.one_row import learn_one_row, refuse_what_no_fit_reaches
        from unsoftmax.learners.computed_transformer.attention import fit_attention

        refuse_what_no_fit_reaches(asker, self.format)
        with asker.phase("class tests"):
            refuse_other_networks(asker, rounding_of(known.answers, self.format), rng.spawn(1)[0])
        network = learn_one_row(asker, self.format, rng)
        with asker.phase("attention"):
            found = fit_attention(stored_sequences(asker, self.format), network.model.folds, self.format, rng)
        model = found.model()
        far = [
            model.distance(found.changed(other.folds, rng).model()) for other in network.draws(_DRAWS, rng)
        ]
        return Learned(
            model,
            _CLAIM,
            error_bound=bound_of(far, self.format),
            note=f"computed in {self.format}: answers to rows of size one are off by {network.rounding:.1g}, "
            "and the error bound holds with 99 % confidence",
        )
