"""Conformance suites for what others may write: one call runs every promise of a protocol, and says in words
which are broken."""

from unsoftmax.testing.learners import check_learner
from unsoftmax.testing.matrix_meter import MatrixMeter
from unsoftmax.testing.meters import check_meter
from unsoftmax.testing.models import check_model
from unsoftmax.testing.oracles import check_oracle
from unsoftmax.testing.solvers import check_solver
from unsoftmax.testing.violations import NonConformance

__all__ = [
    "MatrixMeter",
    "NonConformance",
    "check_learner",
    "check_meter",
    "check_model",
    "check_oracle",
    "check_solver",
]
