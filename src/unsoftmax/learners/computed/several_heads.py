"""Several heads behind arithmetic that rounds at every step, scalar answers: what a default float32 layer of
torch is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.computed.attempts import NotBelieved, first_believed
from unsoftmax.learners.computed.error_bound import HeadErrors, bound_errors
from unsoftmax.learners.computed.fitted_heads import as_model
from unsoftmax.learners.computed.fresh_check import FreshCheck, check_fresh
from unsoftmax.learners.computed.likely_obstacle import likely_obstacle
from unsoftmax.learners.computed.scalar_route import FittedNumbers, fit_heads
from unsoftmax.learners.computed.two_row_queries import Asks, Expect
from unsoftmax.models import MultiHead

__all__ = ["RecoveredHeads", "recover_heads"]

_USELESS = 0.3  # a relative error bound above it describes no recovered parameters


@dataclass(frozen=True)
class RecoveredHeads:
    """model, 99 % bounds on its errors, and what fresh queries showed. noise: relative rounding of answers to
    single rows.
    """

    model: MultiHead
    errors: HeadErrors
    check: FreshCheck
    noise: float

    def believed(self, obstacle: str) -> RecoveredHeads:
        """Returns itself, or raises NotBelieved where fresh queries or the bounds speak against it.

        obstacle: what probably stands in the way, in brackets."""
        if self.check.passed and self.errors.overall < _USELESS:
            return self
        raise NotBelieved(
            f"fresh sequences deviate by {self.check.deviation / self.check.rounding:.0f} times the layer's "
            f"rounding; error bound {self.errors.overall:.1g}{obstacle}"
        )


def recover_heads(
    asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None = None
) -> RecoveredHeads:
    """All heads up to their order, with honest bounds. Raises Unresolved, naming the obstacle, where that
    cannot be done.

    Queries: about 3.5 to 5 times the parameters for wide layers; the search for plateaus costs some hundreds
    more, which shows in small ones.
    """
    return first_believed(lambda: _judged(asker, fit_heads(asker, bits, rng, expect), bits, rng), bits)


def _judged(asker: Asks, fitted: FittedNumbers, bits: int, rng: np.random.Generator) -> RecoveredHeads:
    model = as_model(fitted.heads, fitted.heads.v)
    cancelled = fitted.baseline.cancelled(fitted.heads.v, bits)
    errors = bound_errors(fitted.fit, fitted.heads, bits, rng, cancelled)
    check = check_fresh(asker, model, bits, fitted.baseline.noise, rng)
    obstacle = likely_obstacle(fitted.heads.matrices, fitted.heads.v)
    return RecoveredHeads(model, errors, check, fitted.baseline.noise).believed(obstacle)
