"""A one-layer Transformer: the network from one-row queries, then W from inside one of its linear pieces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner, checks_of_network, usual_for_network
from unsoftmax.ledger import Asker
from unsoftmax.meters import ConeMeter, antisymmetric_meter
from unsoftmax.models import CanonicalNetwork, ReluNetwork, Transformer
from unsoftmax.outcomes import OutsideClass
from unsoftmax.solvers import RangeFinder

__all__ = ["TransformerLearner"]


_TRIALS = 600  # queries that look for a linear piece with moderate scores: a hundred trials of six


def _queries(size: Size) -> int:
    """The network; measurements of W, the column of the piece's centre, its gradient, the skip connection's
    factor, and the search for a piece."""
    d = size.width
    return _NETWORK(size) + size.matrix_parameters + 6 * d + size.rank + 40 + _TRIALS


def _usual(size: Size) -> int:
    """Measured: one trial finds the piece."""
    return usual_for_network(size) + size.matrix_parameters + 2 * size.width + size.rank + 13


def _queries_of_pairs(size: Size) -> int:
    """Two queries per measurement, and an allowance for sizes and saturated probes."""
    d = size.width
    return _NETWORK(size) + 2 * (size.matrix_parameters + d + size.rank) + 96


_NETWORK = ReluNetworkLearner().claim.queries


_CLAIM = Claim(
    title="A one-layer Transformer: its ReLU network, then its attention",
    source="this library; section 4.1 of arXiv 2601.16873 without the assumption Aᵀu ≠ 0",
    assumptions=(
        Assumption("one-row answers are a two-layer ReLU network", "the network learner's tests"),
        Assumption(
            "attention comes before the network, perhaps with a skip connection",
            "weights between 0 and 1 inside a linear piece; certificate",
        ),
        Assumption("answers are exact up to rounding", "collinear answers; early queries asked again"),
    ),
    queries=QueryCount(
        "the network's, and r(2d - r) + 6d + r + 640; usually r(2d - r) + 2d + r + 13",
        "upper",
        _queries,
        _usual,
    ),
    recovers="W (any rank), w0, the residual factor and the network's canonical form",
    symmetry="none for W and w0; the network up to what its function determines",
    verification=lambda size: 201 + checks_of_network(size),
    rows=2,
)


@dataclass(frozen=True)
class TransformerLearner:
    """Recovers f(X) = g(Σ α_i x_i + residual·x_N) with scores x_iᵀ(W x_N + w0) and g a two-layer ReLU
    network.

    Claim: exact in float64. Queries: the network's and about r(2d-r) + 2d + r. Assumes: see `claim`.
    Recovers: everything that the function determines. Departs from the paper: the cone instead of the
    antisymmetric pair, which is available as `meter="antisymmetric"` (no biases, no residual, Aᵀu ≠ 0).
    Fails when: the network learner does.
    """

    family: ClassVar[Family] = Family.TRANSFORMER
    network: ReluNetworkLearner = field(default_factory=ReluNetworkLearner)
    meter: Literal["cone", "antisymmetric"] = "cone"
    solver: RangeFinder = field(default_factory=RangeFinder)

    def __post_init__(self) -> None:
        if self.meter not in ("cone", "antisymmetric"):
            raise UsageError(f"meter must be 'cone' or 'antisymmetric', not {self.meter!r}")

    @property
    def claim(self) -> Claim:
        if self.meter == "cone":
            return _CLAIM
        formula = "the network's, and 2 (r(2d - r) + d + r) + 96"
        return replace(_CLAIM, queries=QueryCount(formula, "upper", _queries_of_pairs))

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        found = self.network.find(asker, rng)
        folds = found.folds.tidy()
        if folds.count == 0 and (learned := _as_one_head(asker, known, rng)) is not None:
            return learned
        if self.meter == "antisymmetric":
            model, error = self._through_pairs(asker, folds, rng), 0.0
        else:
            model, error = self._through_cone(asker, folds, rng)
        least = max(found.error_bound, error)
        return Learned(model, self.claim, bound_at_least=least, caveat=found.caveat)

    def _through_cone(
        self, asker: Asker, folds: CanonicalNetwork, rng: np.random.Generator
    ) -> tuple[Transformer, float]:
        """The model, and how far its residual factor and query bias may be off."""
        with asker.phase("piece"):
            meter = ConeMeter(asker, folds, rng)
        asker.expect(asker.bill.total + asker.width**2)
        with asker.phase("scores"):
            W = self.solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + left)).matrix
            column = W.apply(meter.piece.centre[None])[0]
            w0 = meter.query_bias(column)
        model = Transformer(
            W, ReluNetwork.from_folds(folds.scaled(1.0 / (1.0 + meter.residual))), w0, meter.residual
        )
        size = max(W.norm(), 0.0 if w0 is None else float(np.linalg.norm(w0)))
        doubt = 0.0 if w0 is None else 8.0 * meter.query_bias_error(column) / size
        return model, max(4.0 * meter.residual_error, doubt)

    def _through_pairs(self, asker: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> Transformer:
        meter = antisymmetric_meter(asker, folds, rng)
        with asker.phase("scores"):
            found = self.solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + 2 * left))
        return Transformer(found.matrix, ReluNetwork.from_folds(folds))


def _as_one_head(asker: Asker, known: Known, rng: np.random.Generator) -> Learned | None:
    """A linear network after attention is a single head; None where tests say otherwise, as they do with a
    skip connection."""
    if known.rules_out(Family.SINGLE_HEAD):
        return None
    try:
        learned = SingleHeadLearner().learn(asker, known, rng)
    except OutsideClass:
        return None
    note = "the network is linear, so this Transformer is a single head and is given as one"
    return replace(learned, note=note)
