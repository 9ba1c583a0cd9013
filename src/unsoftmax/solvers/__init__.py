"""Measurements become matrices. Solvers know linear algebra and never see an oracle."""

from unsoftmax.solvers.bases import FacingBasis, RandomBasis
from unsoftmax.solvers.bounded_range import BoundedRangeFinder, Solution
from unsoftmax.solvers.columns import gaussian_probes, solve_columns, structured_probes
from unsoftmax.solvers.range_finder import RangeFinder

__all__ = ["BoundedRangeFinder", "FacingBasis", "RandomBasis", "RangeFinder", "Solution", "gaussian_probes", "solve_columns", "structured_probes"]
