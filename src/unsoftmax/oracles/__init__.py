"""Where answers come from."""

from unsoftmax.oracles.base import Array, Oracle, OracleSpec, check_width, checked_answers, retries_of
from unsoftmax.oracles.function import FunctionOracle
from unsoftmax.oracles.identity import content_fingerprint, identity, pins_content
from unsoftmax.oracles.wrappers import BoundedInputs, Clipped, FlippedLabels, Labels, LowPrecision, Noisy, Rounded, WithinTolerance, in_precision

__all__ = [
    "Array",
    "BoundedInputs",
    "Clipped",
    "FlippedLabels",
    "FunctionOracle",
    "Labels",
    "LowPrecision",
    "Noisy",
    "Oracle",
    "OracleSpec",
    "Rounded",
    "WithinTolerance",
    "check_width",
    "checked_answers",
    "content_fingerprint",
    "identity",
    "in_precision",
    "pins_content",
    "retries_of",
]
