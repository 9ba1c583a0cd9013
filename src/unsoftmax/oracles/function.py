"""Any callable as an oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault
from unsoftmax.foreign_code import foreign_code
from unsoftmax.oracles.base import OracleSpec, checked_answers

__all__ = ["FunctionOracle", "ask"]

_LONGEST = 400  # characters that are told of an exception's text


class FunctionOracle:
    """A callable (B, N, d) -> (B,) or (B, m) behind the oracle contract: every answer checked, every
    exception named.

    >>> import numpy as np
    >>> oracle = FunctionOracle(lambda X: X[:, -1, 0], OracleSpec(width=2))
    >>> oracle(np.ones((3, 1, 2)))
    array([1., 1., 1.])
    """

    def __init__(self, function: Callable[[Array], Any], spec: OracleSpec | None = None) -> None:
        self.function = function
        self.spec = spec if spec is not None else OracleSpec(name=_name(function))

    def with_outputs(self, outputs: int) -> FunctionOracle:
        """The same callable, read as one whose answers hold that many numbers."""
        return FunctionOracle(self.function, replace(self.spec, outputs=outputs))

    def __call__(self, batch: Array, /) -> Array:
        return checked_answers(ask(self.function, batch), len(batch), self.spec.outputs)


def ask(function: Callable[[Array], Any], batch: Array, returns: str = "(B,)") -> Any:
    """What a target's own code returns; whatever it raises is an `OracleFault` that names it."""
    try:
        with foreign_code():
            return function(batch)
    except (OracleFault, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise OracleFault(
            f"the target tried to end the program (sys.exit({error.code!r})) on a batch of shape "
            f"{batch.shape}; remove that call"
        ) from error
    except BaseException as error:  # a GeneratorExit or a group of exceptions too
        takes = "token ids (B, N)" if batch.ndim == 2 else "float64 (B, N, d)"
        raise OracleFault(
            f"the target raised {type(error).__name__} on a batch of shape {batch.shape}: {_told(error)}. A "
            f"target takes {takes} and returns {returns}"
        ) from error


def _told(error: BaseException) -> str:
    """What a target's exception says, in one line that is not too long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
