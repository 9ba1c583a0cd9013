"""One eps for all norms, as configurations of `transformers` have it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.models.parts import Norm

__all__ = ["round_eps", "same_eps"]

_SAME = 1e-6  # relative: a recovered eps is measured, and its norms do not agree to the last digit


def same_eps(norms: Sequence[Norm]) -> bool:
    """Whether all norms have one eps, up to what a measurement leaves."""
    values = np.array([norm.eps for norm in norms])
    return bool(values.max() - values.min() <= _SAME * values.max())


def round_eps(norms: Sequence[Norm]) -> float:
    """Their eps: the median, so that it is one of them or the mean of two."""
    return float(np.median([norm.eps for norm in norms]))
