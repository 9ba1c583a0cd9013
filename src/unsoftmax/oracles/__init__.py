"""Where answers come from."""

from unsoftmax.oracles.base import Array, Oracle, OracleSpec, check_width, checked_answers
from unsoftmax.oracles.function import FunctionOracle
from unsoftmax.oracles.wrappers import BoundedInputs, Labels, Noisy, Rounded, WithinTolerance

__all__ = [
    "Array",
    "BoundedInputs",
    "FunctionOracle",
    "Labels",
    "Noisy",
    "Oracle",
    "OracleSpec",
    "Rounded",
    "WithinTolerance",
    "check_width",
    "checked_answers",
]
