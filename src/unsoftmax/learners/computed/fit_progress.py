"""Signs of life while all parameters are fitted together: nothing is asked then, for minutes in wide ones."""

from __future__ import annotations

import logging

__all__ = ["report_step"]

_log = logging.getLogger("unsoftmax.progress")


def report_step(step: int, residual: float) -> None:
    """A line, shown with --verbose."""
    _log.info("fit of all parameters, step %d: residual %.2g", step, residual)
