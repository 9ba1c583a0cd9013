"""Several heads behind arithmetic that rounds at every step, scalar answers: what a default float32 layer of
torch is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.computed.attempts import first_believed
from unsoftmax.learners.computed.error_bound import HeadErrors, bound_errors
from unsoftmax.learners.computed.fitted_heads import as_model
from unsoftmax.learners.computed.fresh_check import FreshCheck, check_fresh
from unsoftmax.learners.computed.scalar_route import FittedNumbers, fit_heads
from unsoftmax.learners.computed.two_row_queries import Asks, Expect
from unsoftmax.models import MultiHead

__all__ = ["RecoveredHeads", "recover_heads"]

_USELESS = 0.3  # a relative error bound above it describes no recovered parameters
# residual of the fit over the rounding of a unit row. Right fits of coarse layers left 0.4 to 1.1, wrong ones
# 2.1 and more; those of fine layers leave up to 8 where scores are strong, fits that stopped early 17 and
# more, and wrong ones hundreds.
_EXPLAINED, _EXPLAINED_COARSE = 12.0, 1.6


@dataclass(frozen=True)
class RecoveredHeads:
    """model, 99 % bounds on its errors, and what fresh queries showed. noise: relative rounding of answers to
    single rows. left: residual of the fit over the rounding of a unit row.
    """

    model: MultiHead
    errors: HeadErrors
    check: FreshCheck
    noise: float
    left: float
    coarse: bool

    @property
    def why_not(self) -> str | None:
        """Why this is not believed; None where it is."""
        if self.left > (_EXPLAINED_COARSE if self.coarse else _EXPLAINED):
            return f"the fit leaves {self.left:.1f} times the layer's rounding"
        if self.check.passed and self.errors.overall < _USELESS:
            return None
        return (
            f"fresh sequences deviate by {self.check.deviation / self.check.rounding:.0f} times the layer's "
            f"rounding; error bound {self.errors.overall:.1g}"
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
    baseline = fitted.baseline
    return RecoveredHeads(model, errors, check, baseline.noise, fitted.left, baseline.coarse)
