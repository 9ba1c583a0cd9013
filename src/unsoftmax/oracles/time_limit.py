"""A limit to the time that one call of a target may take."""

from __future__ import annotations

import contextvars
import math
import threading

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.function import FunctionOracle

__all__ = ["TimeLimited", "calls_left_behind"]

_NAME = "call of a target"


class TimeLimited(FunctionOracle):
    """The answers of `inner`; a call of more than `seconds` is an `OracleFault`.

    The call runs in a thread of its own, which nothing can stop: it is left behind until the program ends.

    >>> import numpy as np, time
    >>> from unsoftmax.oracles import FunctionOracle
    >>> TimeLimited(FunctionOracle(lambda X: X[:, -1, 0]), 60.0)(np.ones((2, 1, 1)))
    array([1., 1.])
    """

    def __init__(self, inner: Oracle, seconds: float) -> None:
        if isinstance(seconds, bool) or not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"timeout must be a number of seconds > 0, not {seconds!r}")
        super().__init__(inner, inner.spec)
        self._seconds = float(seconds)

    def __call__(self, batch: Array, /) -> Array:
        answers: list[Array] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                answers.append(FunctionOracle.__call__(self, batch))
            except BaseException as error:
                failures.append(error)

        context = contextvars.copy_context()  # numpy keeps there which warnings are off
        thread = threading.Thread(target=context.run, args=(work,), daemon=True, name=_NAME)
        thread.start()
        thread.join(self._seconds)
        if failures:
            raise failures[0]
        if not answers:
            raise OracleFault(
                f"the target did not answer a batch of shape {batch.shape} within {self._seconds:g} s; pass "
                "a larger timeout, or make it faster"
            )
        return answers[0]


def calls_left_behind() -> bool:
    """Whether a call that took too long still runs. Libraries of such targets may abort the program when
    Python closes down, so that it has to end without that."""
    return any(thread.name == _NAME and thread.is_alive() for thread in threading.enumerate())
