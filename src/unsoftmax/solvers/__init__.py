"""Measurements become matrices. Solvers know linear algebra and never see an oracle."""

from unsoftmax.solvers.bases import FacingBasis, RandomBasis
from unsoftmax.solvers.bounded_range import BoundedRangeFinder, Solution
from unsoftmax.solvers.columns import gaussian_probes, solve_columns, structured_probes
from unsoftmax.solvers.fixed_rank import FixedRank, FixedRankSolution
from unsoftmax.solvers.nuclear_norm import NuclearNorm, NuclearNormSolution
from unsoftmax.solvers.range_finder import RangeFinder

__all__ = [
    "BoundedRangeFinder",
    "FacingBasis",
    "FixedRank",
    "FixedRankSolution",
    "NuclearNorm",
    "NuclearNormSolution",
    "RandomBasis",
    "RangeFinder",
    "Solution",
    "gaussian_probes",
    "solve_columns",
    "structured_probes",
]
