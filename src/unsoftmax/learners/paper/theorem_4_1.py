"""Theorem 4.1 of the paper, to the letter: d one-row queries for v, d two-row queries for each column of
W."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.paper.unit_rows import read_unit_rows, refuse_zero
from unsoftmax.ledger import Asker
from unsoftmax.meters.paper.two_rows import TwoRowMeter
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers import Columns, gaussian_probes, structured_probes

__all__ = ["Theorem41", "theorem_4_1"]

_CLAIM = Claim(
    title="Theorem 4.1: exact recovery of one head",
    source="arXiv 2601.16873, Theorem 4.1",
    assumptions=(
        Assumption("v is not zero", "one-row queries"),
        Assumption("no biases (w0 = 0, c = 0)", "certificate"),
        Assumption("no score saturates in floating point", "recovered weights strictly between 0 and 1"),
    ),
    queries=QueryCount("d + d^2", "exact", lambda size: size.width + size.width**2),
    recovers="W and v",
    symmetry="none",
)


@dataclass(frozen=True)
class Theorem41:
    """The paper's baseline. Claim: Theorem 4.1. Queries: exactly d + d². Assumes: v not zero, no biases,
    scores of moderate size.

    Recovers: W, v. Departs from the paper: nothing. Fails when: a score beyond about 36 saturates the sigmoid
    (ends as UNRESOLVED).
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    probes: Literal["gaussian", "structured"] = "gaussian"

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        asker.expect(self.claim.queries(Size(d)))
        v = read_unit_rows(asker)
        refuse_zero(v)
        solver = Columns(structured_probes(v) if self.probes == "structured" else gaussian_probes)
        with asker.phase("scores"):
            W = solver.solve(TwoRowMeter(asker, v), rng).matrix.dense()
        if not np.isfinite(W).all():
            columns = int((~np.isfinite(W)).any(axis=0).sum())
            raise Unresolved(
                f"in {columns} of {d} columns a probe saturated the sigmoid (score beyond about 36), where "
                "nothing can be read; the default learner chooses its sizes and does not saturate"
            )
        return Learned(SingleHead(W, v), self.claim)


def theorem_4_1(probes: Literal["gaussian", "structured"] = "gaussian") -> Theorem41:
    """The learner of Theorem 4.1, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(4, seed=0)
    >>> unsoftmax.recover(head, learner=unsoftmax.theorem_4_1()).queries.learning
    20
    """
    if probes not in ("gaussian", "structured"):
        raise UsageError(f"probes must be 'gaussian' or 'structured', not {probes!r}")
    return Theorem41(probes)
