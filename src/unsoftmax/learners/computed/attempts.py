"""How often a fit is tried, and when its result counts for nothing."""

from __future__ import annotations

__all__ = ["ATTEMPTS", "SAME_OBSTACLE", "USELESS"]

ATTEMPTS = 3
# attempts that may end before a fit: what stands in the way of two random starts stands in that of a third
SAME_OBSTACLE = 2
USELESS = 0.3  # a relative error bound above it describes no recovered parameters
