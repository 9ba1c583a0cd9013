"""Any callable as an oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault
from unsoftmax.oracles.base import OracleSpec, checked_answers

__all__ = ["FunctionOracle"]


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
        try:
            raw = self.function(batch)
        except OracleFault:
            raise
        except SystemExit as error:
            raise OracleFault(
                f"the target tried to end the program (sys.exit({error.code!r})) on a batch of shape "
                f"{batch.shape}; remove that call"
            ) from error
        except Exception as error:
            raise OracleFault(
                f"the target raised {type(error).__name__} on a batch of shape {batch.shape}: {error}. A "
                f"target takes {'token ids (B, N)' if batch.ndim == 2 else 'float64 (B, N, d)'} and returns "
                "(B,)"
            ) from error
        return checked_answers(raw, len(batch), self.spec.outputs)


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
