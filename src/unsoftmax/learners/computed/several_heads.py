"""Several heads behind arithmetic that rounds at every step, scalar answers: what a default float32 layer of
torch is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.computed.attempts import ATTEMPTS, SAME_OBSTACLE, USELESS
from unsoftmax.learners.computed.error_bound import HeadErrors, bound_errors
from unsoftmax.learners.computed.fresh_check import FreshCheck, check_fresh
from unsoftmax.learners.computed.scalar_route import FittedHeads, fit_heads
from unsoftmax.learners.computed.two_row_queries import Asks
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.head_factors import HeadFactors

__all__ = ["RecoveredHeads", "as_model", "recover_heads", "unresolved"]


@dataclass(frozen=True)
class RecoveredHeads:
    """model, 99 % bounds on its errors, and what fresh queries showed. noise: relative rounding of answers to
    single rows.
    """

    model: MultiHead
    errors: HeadErrors
    check: FreshCheck
    noise: float

    @property
    def why_not(self) -> str:
        """Why this is not believed, where it is not."""
        return (
            f"fresh sequences deviate by {self.check.deviation / self.check.rounding:.0f} times the layer's "
            f"rounding; error bound {self.errors.overall:.1g}"
        )


def as_model(heads: HeadFactors) -> MultiHead:
    """The heads as a model, held as factors."""
    singles = []
    for K, Q, v, rank in zip(heads.K, heads.Q, heads.v, heads.ranks, strict=True):
        K, Q = K[:rank], Q[:rank]
        singles.append(SingleHead((K.T, Q[:, :-1].T), v, w0=K.T @ Q[:, -1]))
    return MultiHead(singles, heads.c)


def recover_heads(asker: Asks, bits: int, rng: np.random.Generator, effort: float = 1.0) -> RecoveredHeads:
    """All heads up to their order, with honest bounds. Raises Unresolved, naming the obstacle, where that
    cannot be done.

    Queries: about 3.5 to 5 times the parameters for wide layers; the search for plateaus costs some hundreds
    more, which shows in small ones.
    """
    reasons: list[str] = []
    for _ in range(ATTEMPTS):
        try:
            fitted = fit_heads(asker, bits, rng, effort)
        except (Unresolved, np.linalg.LinAlgError) as reason:
            reasons.append(str(reason))
            if len(reasons) == SAME_OBSTACLE:
                break
            continue
        found = _judged(asker, fitted, bits, rng)
        if found.check.passed and found.errors.overall < USELESS:
            return found
        reasons.append(found.why_not)
    raise unresolved(bits, reasons)


def unresolved(bits: int, reasons: list[str]) -> Unresolved:
    """What all attempts ended with, in one sentence."""
    return Unresolved(
        f"the layer computes with {bits}-bit numbers, and its heads could not be told apart through that "
        f"rounding: {'; '.join(dict.fromkeys(reasons))}. Float64 arithmetic would help"
    )


def _judged(asker: Asks, fitted: FittedHeads, bits: int, rng: np.random.Generator) -> RecoveredHeads:
    model = as_model(fitted.heads)
    errors = bound_errors(fitted.fit, fitted.heads, rng)
    check = check_fresh(asker, model, bits, fitted.baseline.noise, rng)
    return RecoveredHeads(model, errors, check, fitted.baseline.noise)
