"""The paper's way through an unbiased ReLU network: f(X) - f(-X) is a single head with readout 2Aᵀu. Two
queries per measurement."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.meters.one_head.exact import SigmoidMeter
from unsoftmax.models import CanonicalNetwork
from unsoftmax.outcomes import Unresolved

__all__ = ["AntisymmetricPairs", "antisymmetric_meter"]


class AntisymmetricPairs:
    """Asks every sequence and its negative, and answers with the difference: relu(z) - relu(-z) = z, and
    scores do not change.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import random_transformer
    >>> from unsoftmax.oracles import FunctionOracle
    >>> ledger = Ledger(FunctionOracle(random_transformer(3, 5, seed=0)), width=3)
    >>> pairs = AntisymmetricPairs(ledger)
    >>> row = np.ones((1, 1, 3))
    >>> bool(np.isclose(pairs.ask(2 * row)[0], 2 * pairs.ask(row)[0])), ledger.bill.total
    (True, 4)
    """

    def __init__(self, ledger: Asker) -> None:
        self._ledger = ledger

    @property
    def input_bound(self) -> float | None:
        return self._ledger.input_bound

    def batch_size(self, length: int) -> int:
        return max(1, self._ledger.batch_size(length) // 2)

    def blank(self, n_queries: int, length: int) -> Array:
        return self._ledger.blank(n_queries, length)

    def ask(self, batch: Array) -> Array:
        answers = self._ledger.ask(np.concatenate([batch, -batch]))
        return np.asarray(answers[: len(batch)] - answers[len(batch) :])


def antisymmetric_meter(ledger: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> SigmoidMeter:
    """A meter of W through pairs, or a refusal with the reason: it is blind when Aᵀu = 0, and biases break
    the symmetry."""
    if folds.biased:
        raise Unresolved(
            "the network has biases, so f(X) - f(-X) is not a single head and the antisymmetric pair is of "
            "no use; use the cone, which needs no symmetry"
        )
    readout = 2.0 * folds.linear
    if float(np.linalg.norm(readout)) <= 1e-9 * float(np.linalg.norm(folds.normals)):
        raise Unresolved(
            "Aᵀu = 0, so f(X) - f(-X) is zero for every sequence and says nothing of W; use the cone, which "
            "sees it"
        )
    return SigmoidMeter(AntisymmetricPairs(ledger), readout, rng=rng)
