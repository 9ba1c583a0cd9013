"""Where answers come from."""

from unsoftmax.arrays import Array
from unsoftmax.oracles.base import (
    Oracle,
    OracleSpec,
    check_width,
    checked_answers,
    counts_retries,
    domain_of,
    retries_of,
)
from unsoftmax.oracles.domain import Ball, Domain, FiniteRows, Ids, Space, TokenIds, check_vocabulary
from unsoftmax.oracles.function import FunctionOracle
from unsoftmax.oracles.identity import content_fingerprint, identity, pins_content
from unsoftmax.oracles.logits import Logits
from unsoftmax.oracles.token_frame import Framed, TokenFrame, framed
from unsoftmax.oracles.wrappers import (
    BoundedInputs,
    Clipped,
    FlippedLabels,
    Labels,
    LimitedLength,
    LowPrecision,
    Noisy,
    Reversed,
    Rounded,
    WithinTolerance,
)

__all__ = [
    "Array",
    "Ball",
    "BoundedInputs",
    "Clipped",
    "Domain",
    "FiniteRows",
    "FlippedLabels",
    "Framed",
    "FunctionOracle",
    "Ids",
    "Labels",
    "LimitedLength",
    "Logits",
    "LowPrecision",
    "Noisy",
    "Oracle",
    "OracleSpec",
    "Reversed",
    "Rounded",
    "Space",
    "TokenFrame",
    "TokenIds",
    "WithinTolerance",
    "check_vocabulary",
    "check_width",
    "checked_answers",
    "content_fingerprint",
    "counts_retries",
    "domain_of",
    "framed",
    "identity",
    "pins_content",
    "retries_of",
]
