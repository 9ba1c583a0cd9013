"""Answers that may be probabilities, whose logits would tell more."""

from __future__ import annotations

from unsoftmax.arrays import Array
from unsoftmax.outcomes import Unresolved

__all__ = ["probabilities"]


def probabilities(answers: Array) -> Unresolved | None:
    """Why answers that all lie between 0 and 1 are not recovered; None for others.

    >>> import numpy as np
    >>> probabilities(np.array([0.2, 1.3])) is None
    True
    """
    if not (float(answers.min()) > 0.0 and float(answers.max()) < 1.0):
        return None
    return Unresolved(
        "all answers lie between 0 and 1, as probabilities do; if a sigmoid or a softmax makes them, pass "
        "probabilities, and their logits are asked for"
    )
