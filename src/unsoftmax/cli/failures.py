"""What went wrong, as one sentence and an exit status."""

from __future__ import annotations

from dataclasses import dataclass

from unsoftmax.errors import OracleFault, UnsoftmaxError, UsageError, brief

__all__ = [
    "INTERRUPTED",
    "NOT_RECOVERED",
    "ORACLE_FAILED",
    "RECOVERED",
    "WRONG_USAGE",
    "Failure",
    "failure_of",
]

# exit statuses; 130 is what shells report of a program that Ctrl-C ended: 128 + SIGINT
RECOVERED, NOT_RECOVERED, WRONG_USAGE, ORACLE_FAILED, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Failure:
    """Exit status, name of the error, and the sentence."""

    status: int
    kind: str
    message: str


def failure_of(error: BaseException) -> Failure:
    """How a command ends after this error.

    >>> failure_of(UsageError("no such file")).status
    2
    """
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, "Interrupted", f"interrupted; {error}" if error.args else "interrupted")
    if isinstance(error, UsageError):
        return Failure(WRONG_USAGE, type(error).__name__, str(error))
    if isinstance(error, OracleFault):
        return Failure(ORACLE_FAILED, type(error).__name__, str(error))
    if isinstance(error, UnsoftmaxError):
        return Failure(NOT_RECOVERED, type(error).__name__, str(error))
    if isinstance(error, SystemExit):
        return Failure(
            ORACLE_FAILED,
            "SystemExit",
            f"the target tried to end the program (sys.exit({error.code!r})); remove that call",
        )
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        what = f"cannot use {brief(str(error.filename))}" if error.filename else "cannot write the output"
        return Failure(WRONG_USAGE, type(error).__name__, f"{what}: {reason}")
    if isinstance(error, MemoryError):
        return Failure(WRONG_USAGE, "MemoryError", "not enough memory; choose a smaller width or model")
    return Failure(
        NOT_RECOVERED,
        type(error).__name__,
        f"internal error ({type(error).__name__}: {error}); please report it with what --debug shows",
    )
