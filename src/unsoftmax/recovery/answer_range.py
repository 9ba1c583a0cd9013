"""Answers that all lie between 0 and 1, as probabilities do: nobody may have said that they are some."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Finding, Seen, Subject
from unsoftmax.arrays import Array

__all__ = ["AnswerRange"]

_FEWEST = 20  # answers before their range says anything


class AnswerRange:
    """Watches a ledger: the smallest and the largest answer, and whether any is neither 0 nor 1.

    >>> seen = AnswerRange()
    >>> seen("readout", np.zeros((30, 1, 2)), np.linspace(0.1, 0.9, 30))
    >>> str(seen.finding().value)
    'probabilities'
    """

    def __init__(self) -> None:
        self._low, self._high, self._between, self._count = np.inf, -np.inf, False, 0

    def __call__(self, phase: str, batch: Array, answers: Array) -> None:
        if not answers.size:
            return
        self._low = min(self._low, float(answers.min()))
        self._high = max(self._high, float(answers.max()))
        self._between |= bool(((answers > 0.0) & (answers < 1.0)).any())
        self._count += len(answers)

    def finding(self) -> Finding | None:
        """What the answers may be, or None."""
        if self._count < _FEWEST or not self._between or self._low < 0.0 or self._high > 1.0:
            return None
        evidence = f"all answers lie between {self._low:.2g} and {self._high:.2g}"
        return Finding(Subject.RANGE, Seen.PROBABILITIES, evidence, 0)
