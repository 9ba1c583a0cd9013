"""Measurements become matrices. Solvers know linear algebra and never see an oracle."""

from unsoftmax.solvers.base import Announce, Solution, Solver
from unsoftmax.solvers.bases import FacingBasis, RandomBasis
from unsoftmax.solvers.bounded_range import BoundedRangeFinder
from unsoftmax.solvers.columns import Columns, ProbeRows, gaussian_probes, structured_probes
from unsoftmax.solvers.fixed_rank import FixedRank, FixedRankSolution
from unsoftmax.solvers.nuclear_norm import NuclearNorm, NuclearNormSolution, PairDraw, gaussian_pairs
from unsoftmax.solvers.range_finder import RangeFinder

__all__ = [
    "Announce",
    "BoundedRangeFinder",
    "Columns",
    "FacingBasis",
    "FixedRank",
    "FixedRankSolution",
    "NuclearNorm",
    "NuclearNormSolution",
    "PairDraw",
    "ProbeRows",
    "RandomBasis",
    "RangeFinder",
    "Solution",
    "Solver",
    "gaussian_pairs",
    "gaussian_probes",
    "structured_probes",
]
