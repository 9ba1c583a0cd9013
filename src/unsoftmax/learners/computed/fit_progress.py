"""Progress while all parameters are fitted together, which takes minutes in wide layers and no query."""

from __future__ import annotations

import logging
from collections.abc import Callable

from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions

__all__ = ["DENSE", "MANY", "report_steps"]

_log = logging.getLogger("unsoftmax.progress")
# unknowns up to which fits of numbers hold JᵀJ: with 561 of them conjugate gradients take as long, with 1,249
# a quarter of the time, and with 2,209 (width 32, four heads) an eighth, with the same errors to three digits
DENSE = 1000
# unknowns from which a fit takes minutes: it takes no step that hardly helps, and few draws of its errors
MANY = 20_000


def report_steps(what: str, options: RefinementOptions) -> Callable[[int, float], None]:
    """Tells every step: a line with --verbose, the word of the bar on a terminal.

    what: which of the fits this is.
    """

    def report(step: int, residual: float) -> None:
        _log.info("%s, step %d of at most %d: residual %.2g", what, step, options.iterations, residual)

    return report
