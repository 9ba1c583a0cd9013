"""Theorem 5.1 of the paper: a head of known low rank from d one-row queries and C·r·2d Gaussian two-row
queries, by nuclear norm minimisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.learners.base import Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.ledger import Ledger
from unsoftmax.meters import SigmoidMeter
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import NotIdentifiable, Unresolved
from unsoftmax.solvers import NuclearNorm

__all__ = ["Theorem51", "theorem_5_1"]

_PILOT = 16
# products of Gaussians have long tails: the largest of thousands is twenty times as large, and must not
# saturate
_TYPICAL_SCORE = 0.15
_READABLE = 5.0  # beyond, the inverse sigmoid loses digits


@dataclass(frozen=True)
class Theorem51:
    """The paper's compressed sensing. Claim: Theorem 5.1. Queries: exactly d + ⌈2·C·r·d⌉. Assumes: rank of W
    at most r, v not zero, no biases.

    Recovers: W, v, with a probability that rises steeply from 0 to 1 around a C that has to be measured (see
    docs/low-rank.md). Departs
    from the paper: the Gaussian rows are scaled by a common factor so that scores are of size one (the few
    queries that find the factor are among those counted), and rows that v hardly hears are drawn again before
    they are asked. Fails
    when: C is too small (the
    minimiser then has a larger rank: UNRESOLVED).
    """

    family: ClassVar[str] = "single-head"
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
            symmetry="none: both are unique when v is not zero",
            departs=(
                "Gaussian rows scaled by a common factor, found within the counted queries; rows with "
                "|a·v| < 0.025 |v| drawn again"
            ),
        )

    def measurements(self, width: int) -> int:
        """Number of two-row queries."""
        return ceil(2 * self.C * self.rank * width - 1e-9)

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        d = ledger.width
        if self.rank > d:
            raise UsageError(f"rank {self.rank} but the width is {d}; pass a rank of at most {d}")
        total = self.measurements(d)
        ledger.expect(d + total)
        with ledger.phase("values"):
            v = ledger.ask(np.eye(d)[:, None])
        if not v.any():
            raise NotIdentifiable(
                "v = 0: every answer is zero, so W leaves no trace in any answer and cannot be seen"
            )
        with ledger.phase("scores"):
            A, B, t = self._measure(ledger, v, total, rng)
        if not np.isfinite(t).all():
            raise Unresolved(
                f"{int((~np.isfinite(t)).sum())} of {len(t)} Gaussian pairs saturated the sigmoid; the "
                "default learner chooses its sizes"
            )
        found = self.solver.solve(A, B, t)
        if found.rank > self.rank or not found.polished:
            raise Unresolved(
                f"the matrix of least nuclear norm that agrees with {len(t)} measurements has rank "
                f"{found.rank}, not {self.rank} "
                f"(residuals {found.primal:.1g} and {found.dual:.1g}); C = {self.C:g} is too small for this "
                "head, or its rank is larger"
            )
        return Learned(SingleHead(found.matrix, v))

    def _measure(
        self, ledger: Ledger, v: Array, total: int, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Gaussian pairs and their forms. One pair at several sizes, then a few more pairs, tell the size of
        the rest."""
        meter = SigmoidMeter(ledger, v, rng=rng)
        before = ledger.bill.total
        gamma, beta = (size / np.sqrt(len(v)) for size in meter.scales)
        left, settled = total - (ledger.bill.total - before), False
        parts: list[tuple[Array, Array, Array]] = []
        while left > 0:
            count = left if settled else min(_PILOT, left)
            A, B = gamma * _heard(v, count, rng), beta * rng.standard_normal((count, len(v)))
            t = meter.forms(A, B)
            t = np.where(np.isfinite(t), t, np.inf)
            left -= count
            typical = float(np.median(np.abs(t)))
            readable = (
                np.abs(t) < _READABLE if not settled else np.full(count, True)
            )  # pilots may have been too loud
            if typical <= 1e-9:  # however large the rows, only rounding is heard: W = 0
                t, readable = np.zeros(count), np.full(count, True)
            parts.append((A[readable] / gamma, B[readable] / beta, t[readable] / (gamma * beta)))
            settled = typical < 1.0
            gamma *= 2.0**-6 if typical > _READABLE else _TYPICAL_SCORE / typical if typical > 1e-9 else 1.0
        return (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
        )


def _heard(v: Array, count: int, rng: np.random.Generator) -> Array:
    """Gaussian rows; the one in fifty that v hardly hears is drawn again, because its answer would be mostly
    rounding."""
    rows = rng.standard_normal((count, len(v)))
    while (quiet := np.abs(rows @ v) < 0.025 * np.linalg.norm(v)).any():
        rows[quiet] = rng.standard_normal((int(quiet.sum()), len(v)))
    return rows


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
