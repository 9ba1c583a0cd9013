"""Learners that do to a worker what should not be done."""

from __future__ import annotations

import os
from typing import Any

import unsoftmax


class _Hostile(unsoftmax.SingleHeadLearner):
    def learn(self, ledger: Any, rng: Any) -> Any:
        raise MemoryError("no room for the answers")


class _Deadly(unsoftmax.SingleHeadLearner):
    def learn(self, ledger: Any, rng: Any) -> Any:
        os._exit(9)


def failing() -> Any:
    return _Hostile()


def deadly() -> Any:
    return _Deadly()
