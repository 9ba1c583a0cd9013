"""Answers that all lie between 0 and 1, as probabilities do, or are a few whole numbers, as classes are:
nobody may have said so."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Finding, Seen, Subject
from unsoftmax.arrays import Array

__all__ = ["AnswerRange"]

_FEWEST = 20  # answers before their range says anything
_MOST_CLASSES = 11  # whole numbers: the rows then move answers by less than ten times their rounding
_EACH = 4  # answers a class, at least: a rounded function of many sizes repeats itself less


class AnswerRange:
    """Watches a ledger: the smallest and the largest answer, whether any is neither 0 nor 1, and how many
    whole numbers there are, where all are one.

    >>> seen = AnswerRange()
    >>> seen("readout", np.zeros((30, 1, 2)), np.linspace(0.1, 0.9, 30))
    >>> str(seen.finding().value)
    'probabilities'
    """

    def __init__(self) -> None:
        self._low, self._high, self._between, self._count = np.inf, -np.inf, False, 0
        self._whole: set[float] | None = set()

    @property
    def _within(self) -> bool:
        return self._low >= 0.0 and self._high <= 1.0

    def __call__(self, phase: str, batch: Array, answers: Array) -> None:
        decided = self._whole is None and not self._within  # as soon as it is, further answers say nothing
        if decided or not answers.size:
            return
        self._low = min(self._low, float(answers.min()))
        self._high = max(self._high, float(answers.max()))
        self._between |= bool(((answers > 0.0) & (answers < 1.0)).any())
        self._count += len(answers)
        if answers.ndim > 1:
            self._whole = None
        if self._whole is not None:
            self._whole |= set(np.unique(answers).tolist())
            if len(self._whole) > _MOST_CLASSES or not all(map(float.is_integer, self._whole)):
                self._whole = None

    def finding(self) -> Finding | None:
        """What the answers may be, or None."""
        if self._whole is not None and 2 < len(self._whole) <= self._count / _EACH:
            evidence = f"{self._count} answers are {len(self._whole)} different whole numbers, as classes are"
            return Finding(Subject.RANGE, Seen.CLASSES, evidence, 0)
        if self._count < _FEWEST or not self._between or not self._within:
            return None
        evidence = f"all answers lie between {self._low:.2g} and {self._high:.2g}"
        return Finding(Subject.RANGE, Seen.PROBABILITIES, evidence, 0)
