"""Theorem B.1 of the paper, to the letter: labels, v by averaging signs (Hoeffding), every entry of W by
bisecting λ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import expit
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.late_scipy import gammaln
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.ledger import Asker
from unsoftmax.meters.paper.sign_bisection import SignBisection
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers import Columns

__all__ = ["TheoremB1", "theorem_b_1"]

_TOP = float(expit(1.0))  # weight of the first row at the largest score that the theorem asks with


@dataclass(frozen=True)
class TheoremB1:
    """The paper's learner for labels. Claim: Theorem B.1. Queries: `samples` + d² `steps`. Assumes: |v| = 1,
    |v_i| ≥ mu, |W| ≤ B.

    Recovers: v to eps (with probability 1 - delta), W to `proven_error`. Departs from the paper: nothing.
    Fails when: eps ≥ mu, or its bound exceeds W.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    B: float
    mu: float
    eps: float
    delta: float

    @property
    def claim(self) -> Claim:
        return Claim(
            title="Theorem B.1: one head from labels",
            source="arXiv 2601.16873, Theorem B.1",
            assumptions=(
                Assumption("|v| = 1 and every |v_i| is at least mu > eps", "given"),
                Assumption("B is at least the Frobenius norm of W", "given"),
                Assumption("no biases (w0 = 0, c = 0)", "certificate"),
            ),
            queries=QueryCount(
                "O(d log(1/delta)/eps²) + d² log2(O(1)/eps)",
                "exact",
                lambda size: self.samples(size.width) + size.width**2 * self.steps,
            ),
            recovers="the direction of v to eps, W to O(d B eps/mu)",
            symmetry="the length of v leaves no trace in labels",
        )

    def samples(self, d: int) -> int:
        """Random labels that put the average of sign(u·v)·u within eps of the direction of v, with
        probability 1 - delta.

        The average of n such vectors is within (1 + sqrt(2 log 1/delta))/sqrt(n) of its mean κv, κ = E|u_1|,
        and normalising at most doubles that.
        """
        needed = 2.0 * (1.0 + np.sqrt(2.0 * np.log(1.0 / self.delta))) / (_mean_part(d) * self.eps)
        return int(np.ceil(needed**2))

    @property
    def _drift(self) -> float:
        """How far log|v_i| can be off."""
        return float(-np.log1p(-self.eps / self.mu)) if self.eps < self.mu else np.inf

    @property
    def _range(self) -> float:
        """Length of the interval of log λ in which the sign changes."""
        return 0.5 * float(np.log(_TOP / (1.0 - _TOP))) + 2.0 * self._drift

    @property
    def steps(self) -> int:
        """Halvings that leave log λ within eps/4."""
        return int(np.ceil(np.log2(max(2.0 * self._range / self.eps, 2.0))))

    def proven_error(self, d: int) -> float:
        """Bound on the Frobenius error of W when v is within eps.

        log σ(t) is off by the last interval of log λ and by twice the error of log|v_i|; t by 1/(1 - σ(1))
        times that.

        >>> 0 < TheoremB1(1.0, 0.5, 1e-3, 0.01).proven_error(2) < 0.1
        True
        """
        last = self._range * 2.0**-self.steps / 2.0
        return float(d * self.B * (2.0 * last + 2.0 * self._drift) / (1.0 - _TOP))

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        head = self.estimate(asker, rng)
        error, size = self.proven_error(asker.width), head.matrix.norm()
        bound = error / (size - error) if size > error else np.inf
        if not bound <= 0.1:
            raise Unresolved(
                f"the theorem's bound on the Frobenius error of W is {error:.3g}, and W is of size "
                f"{size:.3g}; eps = {0.1 * self.eps * size / error:.1g} instead of {self.eps:.1g} would make "
                "it a tenth of that"
            )
        note = "labels show only the direction of v (returned with length 1); W is complete"
        return Learned(head, self.claim, max(bound, self.eps), note=note)

    def estimate(self, asker: Asker, rng: np.random.Generator) -> SingleHead:
        """The theorem's estimate."""
        d = asker.width
        asker.expect(self.claim.queries(Size(d)))
        total = np.zeros(d)
        left = self.samples(d)
        with asker.phase("values"):
            while left > 0:
                n = min(left, asker.batch_size(1))
                u = rng.standard_normal((n, d))
                u /= np.linalg.norm(u, axis=1)[:, None]
                total += np.where(asker.ask(u[:, None]) > 0.5, 1.0, -1.0) @ u
                left -= n
        v = total / np.linalg.norm(total)
        meter = SignBisection(asker, v, 1.0 / self.B, reach=self._range / 2, steps=self.steps)
        with asker.phase("scores"):
            W = Columns(lambda width, rng: np.eye(width)).solve(meter, rng).matrix
        return SingleHead(W, v)


def _mean_part(d: int) -> float:
    """E|u_1| for a random unit vector: Γ(d/2) / (√π Γ((d+1)/2))."""
    return float(np.exp(gammaln(d / 2) - gammaln((d + 1) / 2)) / np.sqrt(np.pi))


def theorem_b_1(B: float, mu: float, eps: float, delta: float = 0.01) -> TheoremB1:
    """The learner of Theorem B.1, for `recover(target, learner=...)`. B: bound on |W|. mu: least |v_i| of a
    unit v. eps: wanted error of v.

    >>> import numpy as np, unsoftmax
    >>> head = unsoftmax.SingleHead([[0.5, 0.2], [0.1, 0.4]], [0.6, 0.8])
    >>> learner = unsoftmax.theorem_b_1(1.0, 0.6, 0.02)
    >>> result = unsoftmax.recover(unsoftmax.Labels(unsoftmax.as_oracle(head)), learner=learner)
    >>> str(result.status), result.queries.learning == learner.claim.queries(unsoftmax.Size(2))
    ('UNRESOLVED', True)
    """
    for name, value in (("B", B), ("mu", mu)):
        if not (np.isfinite(value) and value > 0.0):
            raise UsageError(f"{name} must be a finite number > 0, not {value!r}")
    if not 0.0 < eps < mu:
        raise UsageError(
            f"eps must be above 0 and below mu = {mu:g}, not {eps!r}; the signs of v are uncertain otherwise"
        )
    if not 0.0 < delta < 1.0:
        raise UsageError(f"delta must be a probability above 0 and below 1, not {delta!r}")
    return TheoremB1(float(B), float(mu), float(eps), float(delta))
