"""Entries of a score table -> keys and queries of its low-rank form."""

from unsoftmax.solvers.score_table.cross import CrossOptions
from unsoftmax.solvers.score_table.solver import CrossApproximation, ScoreTable

__all__ = ["CrossApproximation", "CrossOptions", "ScoreTable"]
