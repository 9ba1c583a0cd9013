"""Where answers come from."""

from unsoftmax.oracles.base import Array, Oracle, OracleSpec, check_width, checked_answers, retries_of
from unsoftmax.oracles.function import FunctionOracle
from unsoftmax.oracles.identity import content_fingerprint, identity, pins_content
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
    "content_fingerprint",
    "identity",
    "pins_content",
    "retries_of",
]
