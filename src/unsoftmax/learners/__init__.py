"""Pairings of a meter and a solver, one file per theorem or setting. Each is imported where it is chosen."""

from unsoftmax.learners.base import Known, Learned, Learner, Readout
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size

__all__ = ["Assumption", "Claim", "Known", "Learned", "Learner", "QueryCount", "Readout", "Size"]
