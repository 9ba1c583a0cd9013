"""The errors that users see: wrong use, a faulty oracle, a bad file. Learning outcomes are statuses, not
errors."""

from __future__ import annotations

from typing import Any

__all__ = [
    "LedgerFault",
    "LedgerRefused",
    "ModelFileError",
    "NonFiniteAnswers",
    "NotRecovered",
    "OracleFault",
    "RequestRefused",
    "UnsoftmaxError",
    "UsageError",
    "VectorAnswers",
    "brief",
]

_LONGEST = 200  # characters of what somebody typed, in a message


class UnsoftmaxError(Exception):
    """Root of every error that this library raises on purpose."""


class UsageError(UnsoftmaxError, ValueError):
    """The call itself is wrong: a shape, an option, a name. The message says what to pass instead."""


class ModelFileError(UsageError):
    """A model file that cannot be read as one: truncated, foreign, or inconsistent."""


class OracleFault(UnsoftmaxError):
    """The oracle did not answer, or answered with something that is not an answer (NaN, wrong length, wrong
    type)."""


class NonFiniteAnswers(OracleFault):
    """The oracle answered a batch with NaN or infinity, as targets do whose arithmetic overflows. A learner
    may go on with shorter rows."""


class VectorAnswers(OracleFault):
    """Every answer holds `outputs` numbers, where one was expected; `queries` showed it."""

    def __init__(self, message: str, outputs: int, queries: int) -> None:
        super().__init__(message)
        self.outputs = outputs
        self.queries = queries

    def __reduce__(self) -> tuple[type[VectorAnswers], tuple[str, int, int]]:
        return type(self), (str(self), self.outputs, self.queries)


class RequestRefused(OracleFault):
    """The server does not answer a request of this form. said: why, in its words. malformed: whether it says
    that the form is the reason (400 and 422), and not that something else failed."""

    def __init__(self, message: str, said: str = "", malformed: bool = True) -> None:
        super().__init__(message)
        self.said = said or message
        self.malformed = malformed


class LedgerRefused(UsageError):
    """A ledger file that cannot serve this run: of another target, seed, learner or version, damaged, or in
    use."""


class LedgerFault(OracleFault):
    """The ledger could not be written, so nothing more was asked. Run again with the same ledger once the
    cause is gone."""


class NotRecovered(UnsoftmaxError):
    """Raised by `Result.unwrap` when there is no model; `.result` is the whole result."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


def brief(text: str) -> str:
    """What somebody typed, as a message repeats it: an address may be as long as one likes.

    >>> brief("short"), len(brief("1" * 5000))
    ('short', 203)
    """
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
