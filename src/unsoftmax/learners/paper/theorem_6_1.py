"""Theorem 6.1 of the paper, to the letter: scaled probes, clipped inversion, d + d² queries, and its bound
with these constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array, expit
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.paper.unit_rows import read_unit_rows
from unsoftmax.ledger import Asker
from unsoftmax.meters.paper.two_rows import TwoRowMeter
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers import Columns, ProbeRows, structured_probes

__all__ = ["Theorem61", "theorem_6_1"]

_TOP = float(expit(1.0))  # a scaled probe has a score between -1 and 1, so a weight between 1 - _TOP and _TOP
_LIPSCHITZ = 1.0 / (_TOP * (1.0 - _TOP))  # of the inverse sigmoid there: 5.09

_CLAIM = Claim(
    title="Theorem 6.1: one head within a tolerance",
    source="arXiv 2601.16873, Theorem 6.1",
    assumptions=(
        Assumption("B is at least the Frobenius norm of W", "given"),
        Assumption(
            "every non-zero entry of v is at least mu in size, and tau < mu/2",
            "given; readings between are refused",
        ),
        Assumption("every answer is within tau of the function", "given"),
        Assumption("no biases (w0 = 0, c = 0)", "certificate"),
    ),
    queries=QueryCount("d + d^2", "exact", lambda size: size.width + size.width**2),
    recovers="W to a Frobenius error of O(d B (1 + B) tau / mu), v to tau an entry",
    symmetry="none",
)


@dataclass(frozen=True)
class Theorem61:
    """The paper's learner for approximate answers. Claim: Theorem 6.1. Queries: exactly d + d². Assumes: B,
    mu and tau are given and right.

    Recovers: W to `proven_error`, v to tau an entry. Departs from the paper: nothing. Fails when: its bound
    exceeds W, which is usual (UNRESOLVED).
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    B: float
    mu: float
    tau: float

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        head, zeros = self.estimate(asker)
        error = self.proven_error(asker.width, zeros)
        size = head.matrix.norm()
        of_W = error / (size - error) if size > error else np.inf
        of_v = (
            self.tau
            * np.sqrt(asker.width)
            / max(float(np.linalg.norm(head.v)) - self.tau * np.sqrt(asker.width), 1e-300)
        )
        if not of_W <= 0.1:
            raise Unresolved(
                f"the theorem's bound on the Frobenius error of W is {error:.3g}, and W is of size "
                f"{size:.3g}; tau = {self.tau_for(0.1 * size, asker.width):.1g} instead of {self.tau:.1g} "
                "would make it a tenth of that"
            )
        note = f"Theorem 6.1 with B = {self.B:g}, mu = {self.mu:g}, tau = {self.tau:g}"
        return Learned(head, self.claim, float(max(of_W, of_v)), note=note)

    def estimate(self, asker: Asker) -> tuple[SingleHead, int]:
        """The theorem's estimate, and how many entries of v are read as zero."""
        d = asker.width
        asker.expect(self.claim.queries(Size(d)))
        v = read_unit_rows(asker)
        v = np.where(np.abs(v) < self.mu / 2, 0.0, v)
        if not v.any():
            raise Unresolved(
                f"every entry of v is below the margin mu = {self.mu:g}; a smaller mu (and tau) is needed, "
                "or v = 0"
            )
        with asker.phase("scores"):
            W = Columns(self._probes(v)).solve(TwoRowMeter(asker, v, 1.0), np.random.default_rng(0)).matrix
        return SingleHead(W, v), int((v == 0.0).sum())

    def _probes(self, v: Array) -> ProbeRows:
        """e_i/B, or (e_i + e_p)/(2B) where v_i is read as zero, so that no score exceeds one."""
        rows = structured_probes(v)(len(v), np.random.default_rng(0))
        scaled = rows / (self.B * rows.sum(axis=1, keepdims=True))
        return lambda width, rng: scaled

    def proven_error(self, d: int, zeros: int = 0) -> float:
        """Bound on the Frobenius error of W, when `zeros` entries of v are zero.

        A weight is off by at most e = (2kB + σ(1)) tau/(mu - tau), k = 1 for rows with v_i ≠ 0 and 2 for the
        others, so an entry by 5.09·k·B·e; the others also inherit the error of row p.

        >>> 0 < Theorem61(1.0, 0.1, 1e-6).proven_error(4) < 1e-2
        True
        """
        if self.tau >= self.mu / 2:
            return np.inf
        of_row, of_pair = (
            _LIPSCHITZ * k * self.B * (2.0 * k * self.B + _TOP) * self.tau / (self.mu - self.tau)
            for k in (1.0, 2.0)
        )
        return float(np.sqrt(d * ((d - zeros) * of_row**2 + zeros * (of_row + of_pair) ** 2)))

    def tau_for(self, eps: float, d: int) -> float:
        """The tolerance at which `proven_error` is eps, no entry of v zero.

        >>> learner = Theorem61(1.0, 0.1, 1e-6)
        >>> round(learner.tau_for(learner.proven_error(4), 4), 12)
        1e-06
        """
        per_tau = d * _LIPSCHITZ * self.B * (2.0 * self.B + _TOP)
        return float(eps * self.mu / (per_tau + eps))


def theorem_6_1(B: float, mu: float, tau: float) -> Theorem61:
    """The learner of Theorem 6.1, for `recover(target, learner=...)`. B: bound on |W|. mu: least non-zero
    |v_i|. tau: tolerance.

    >>> import unsoftmax
    >>> head = unsoftmax.SingleHead([[0.5, 0.2], [0.1, 0.4]], [0.6, 0.8])
    >>> oracle = unsoftmax.WithinTolerance(unsoftmax.as_oracle(head), 1e-5)
    >>> result = unsoftmax.recover(oracle, learner=unsoftmax.theorem_6_1(1.0, 0.6, 1e-5))
    >>> str(result.status), result.queries.learning, head.distance(result.model) < result.error_bound
    ('WITHIN_BOUND', 6, True)
    """
    for name, value in (("B", B), ("mu", mu)):
        if not (np.isfinite(value) and value > 0.0):
            raise UsageError(f"{name} must be a finite number > 0, not {value!r}")
    if not 0.0 <= tau < mu / 2:
        raise UsageError(
            f"tau must be at least 0 and below mu/2 = {mu / 2:g}, not {tau!r}; zero and non-zero entries of "
            "v look alike otherwise"
        )
    return Theorem61(float(B), float(mu), float(tau))
