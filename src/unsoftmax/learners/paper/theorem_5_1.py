"""Theorem 5.1 of the paper: a head of known low rank from d one-row queries and C·r·2d Gaussian two-row
queries, by nuclear norm minimisation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.paper.unit_rows import read_unit_rows, refuse_zero
from unsoftmax.ledger import Asker
from unsoftmax.meters.paper.scaled_pairs import ScaledPairs
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers import NuclearNorm, PairDraw, gaussian_pairs

__all__ = ["Theorem51", "theorem_5_1"]

# the one row in fifty with a smaller product with v is drawn again: its answer would be mostly rounding
_LEAST_SEEN = 0.025


@dataclass(frozen=True)
class Theorem51:
    """The paper's compressed sensing. Claim: Theorem 5.1. Queries: exactly d + ⌈2·C·r·d⌉. Assumes: rank of W
    at most r, v not zero, no biases.

    Recovers: W, v, with a probability that rises steeply from 0 to 1 around a C that has to be measured (see
    docs/low-rank.md). Departs from the paper: the Gaussian rows are scaled by a common factor so that scores
    are of size one (the few queries that find the factor are among those counted), and rows nearly orthogonal
    to v are drawn again before they are asked. Fails when: C is too small (the minimiser then has a larger
    rank: UNRESOLVED).
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    rank: int
    C: float = 3.0
    solver: NuclearNorm = field(default_factory=NuclearNorm)

    @property
    def claim(self) -> Claim:
        return Claim(
            title=f"Theorem 5.1: a head of rank at most {self.rank} by nuclear norm minimisation",
            source="arXiv 2601.16873, Theorem 5.1 (rank-one measurements: Cai and Zhang 2015)",
            assumptions=(
                Assumption("v is not zero", "one-row queries"),
                Assumption(f"rank of W at most {self.rank}", "rank of the minimiser"),
                Assumption(f"C = {self.C:g} is large enough", "rank of the minimiser, certificate"),
                Assumption("no biases (w0 = 0, c = 0)", "certificate"),
            ),
            queries=QueryCount(
                f"d + ceil(2·{self.C:g}·{self.rank}·d)",
                "exact",
                lambda size: size.width + self.measurements(size.width),
            ),
            recovers="W and v, with high probability over the Gaussian pairs once C exceeds its threshold",
            symmetry="none; both are unique when v is not zero",
        )

    def measurements(self, width: int) -> int:
        """Number of two-row queries."""
        return ceil(2 * self.C * self.rank * width - 1e-9)

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        if self.rank > d:
            raise UsageError(f"rank {self.rank} but the width is {d}; pass a rank of at most {d}")
        total = self.measurements(d)
        asker.expect(d + total)
        v = read_unit_rows(asker)
        refuse_zero(v)
        with asker.phase("scores"):
            before = asker.bill.total
            meter = ScaledPairs(asker, v, rng)
            left = max(total - (asker.bill.total - before), 0)
            solver = replace(self.solver, measurements=left, draw=_pairs_that_see(v))
            found = solver.solve(meter, rng)
        if found.measurements < left // 2:
            raise Unresolved(
                f"{left - found.measurements} of {left} Gaussian pairs saturated the sigmoid; the default "
                "learner chooses its sizes"
            )
        if found.rank > self.rank or not found.polished:
            raise Unresolved(
                f"the matrix of least nuclear norm that agrees with {found.measurements} measurements has "
                f"rank {found.rank}, not {self.rank} (residuals {found.primal:.1g} and {found.dual:.1g}); C "
                f"= {self.C:g} is too small for this head, or its rank is larger"
            )
        return Learned(SingleHead(found.matrix, v), self.claim)


def _pairs_that_see(v: Array) -> PairDraw:
    """Gaussian pairs; an a that is nearly orthogonal to v is drawn again."""

    def draw(n: int, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
        A, B = gaussian_pairs(n, width, rng)
        while (unseen := np.abs(A @ v) < _LEAST_SEEN * np.linalg.norm(v)).any():
            A[unseen] = rng.standard_normal((int(unseen.sum()), width))
        return A, B

    return draw


def theorem_5_1(rank: int, C: float = 3.0) -> Theorem51:
    """The learner of Theorem 5.1, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(8, 1, seed=0)
    >>> unsoftmax.recover(head, learner=unsoftmax.theorem_5_1(rank=1, C=3.0)).queries.learning
    56
    """
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise UsageError(f"rank must be a whole number >= 1, not {rank!r}")
    if not (np.isfinite(C) and C > 0):
        raise UsageError(f"C must be a finite number > 0, not {C!r}; about 3 suffices for widths up to 64")
    return Theorem51(int(rank), float(C))
