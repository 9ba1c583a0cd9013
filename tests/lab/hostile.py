"""Learners that do to a worker what should not be done."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import unsoftmax


class _Hostile(unsoftmax.SingleHeadLearner):
    def learn(self, asker: Any, known: Any, rng: Any) -> Any:
        raise MemoryError("no room for the answers")


class _Deadly(unsoftmax.SingleHeadLearner):
    def learn(self, asker: Any, known: Any, rng: Any) -> Any:
        os._exit(9)


def failing() -> Any:
    return _Hostile()


def deadly() -> Any:
    return _Deadly()


def mortal(X: Any) -> Any:
    """A head whose first process dies in the middle; the file named by MORTAL remembers that it did."""
    mark = Path(os.environ["MORTAL"])
    if X.shape[1] == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return unsoftmax.random_single_head(5, seed=4)(X)


def always_dying(X: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
