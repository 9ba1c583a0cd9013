"""A one-layer Transformer: the network from one-row queries, then W from inside one of its linear pieces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.learners.base import Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.ledger import Ledger
from unsoftmax.meters import ConeMeter, antisymmetric_meter
from unsoftmax.models import CanonicalNetwork, ReluNetwork, Transformer
from unsoftmax.models.matrices import as_matrix
from unsoftmax.solvers import RangeFinder

__all__ = ["TransformerLearner"]


def _attention_queries(d: int, r: int) -> int:
    """Measurements of W, the column of the piece's centre, its gradient, and an allowance for the range and
    saturated probes."""
    return r * (2 * d - r) + 2 * d + 1 + d + r + 96


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
        "network: 1.08 (m + 1)(d + 1) + 8m + 4d + 120; attention: r(2d - r) + 3d + r + 97",
        "upper",
        _attention_queries,
    ),
    recovers="W (any rank), w0, the residual factor and the network's canonical form",
    symmetry="none for W and w0; the network up to what its function determines",
    departs=(
        "W is measured inside one linear piece of the network (one query each) instead of by antisymmetric "
        "pairs (two each, blind at Aᵀu = 0)"
    ),
)


@dataclass(frozen=True)
class TransformerLearner:
    """Recovers f(X) = g(Σ α_i x_i + residual·x_N) with scores x_iᵀ(W x_N + w0) and g a two-layer ReLU
    network.

    Claim: exact in float64. Queries: the network's and r(2d-r) + 3d + r + 97. Assumes: see `claim`. Recovers:
    everything that the function
    determines. Departs from the paper: the cone instead of the antisymmetric pair, which is available as
    `meter="antisymmetric"` (no biases, no residual, Aᵀu ≠ 0). Fails when: the network learner does.
    """

    family: ClassVar[str] = "transformer"
    network: ReluNetworkLearner = field(default_factory=ReluNetworkLearner)
    meter: Literal["cone", "antisymmetric"] = "cone"
    solver: RangeFinder = field(default_factory=RangeFinder)

    def __post_init__(self) -> None:
        if self.meter not in ("cone", "antisymmetric"):
            raise UsageError(f"meter must be 'cone' or 'antisymmetric', not {self.meter!r}")

    @property
    def claim(self) -> Claim:
        return _CLAIM

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        found = self.network.find(ledger, rng)
        folds = found.folds.tidy()
        if folds.count == 0:
            learned = SingleHeadLearner().learn(ledger, rng)
            return replace(
                learned,
                note="the network is linear, so this Transformer is a single head and is given as one",
            )
        if self.meter == "antisymmetric":
            return Learned(
                self._through_pairs(ledger, folds, rng), bound_at_least=found.error_bound, caveat=found.caveat
            )
        model, doubt = self._through_cone(ledger, folds, rng)
        return Learned(model, bound_at_least=max(found.error_bound, doubt), caveat=found.caveat)

    def _through_cone(
        self, ledger: Ledger, folds: CanonicalNetwork, rng: np.random.Generator
    ) -> tuple[Transformer, float]:
        """The model, and how far its residual factor and query bias may be off."""
        with ledger.phase("piece"):
            meter = ConeMeter(ledger, folds, rng)
        ledger.expect(ledger.bill.total + ledger.width**2)
        with ledger.phase("scores"):
            W = as_matrix(self.solver.solve(meter, rng, lambda left: ledger.expect(ledger.bill.total + left)))
            column = W.apply(meter.piece.centre[None])[0]
            w0 = meter.query_bias(column)
        model = Transformer(
            W, ReluNetwork.from_folds(folds.scaled(1.0 / (1.0 + meter.residual))), w0, meter.residual
        )
        size = max(W.norm(), 0.0 if w0 is None else float(np.linalg.norm(w0)))
        doubt = 0.0 if w0 is None else 8.0 * meter.query_bias_error(column) / size
        return model, max(4.0 * meter.residual_error, doubt)

    def _through_pairs(
        self, ledger: Ledger, folds: CanonicalNetwork, rng: np.random.Generator
    ) -> Transformer:
        meter = antisymmetric_meter(ledger, folds, rng)
        with ledger.phase("scores"):
            W = self.solver.solve(meter, rng, lambda left: ledger.expect(ledger.bill.total + 2 * left))
        return Transformer(W, ReluNetwork.from_folds(folds))
