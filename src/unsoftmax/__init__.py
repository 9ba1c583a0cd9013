"""Recover the parameters of attention models from black-box queries, with a certificate and the bill.

>>> import unsoftmax
>>> result = unsoftmax.recover("demo:single-head?d=8&r=2")
>>> str(result.status), result.model.rank
('EXACT', 2)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "BoundedInputs": "oracles",
    "Equivalence": "models",
    "FunctionOracle": "oracles",
    "Labels": "oracles",
    "Ledger": "ledger",
    "ModelFileError": "errors",
    "MultiHead": "models",
    "MultiHeadLearner": "learners",
    "Noisy": "oracles",
    "NotRecovered": "errors",
    "Oracle": "oracles",
    "OracleFault": "errors",
    "OracleSpec": "oracles",
    "Progress": "ledger",
    "Result": "result",
    "Rounded": "oracles",
    "SingleHead": "models",
    "SingleHeadLearner": "learners",
    "Status": "outcomes",
    "UnsoftmaxError": "errors",
    "UsageError": "errors",
    "WithinTolerance": "oracles",
    "as_oracle": "targets",
    "equivalent": "models",
    "from_torch": "models",
    "load": "models",
    "random_multi_head": "models",
    "random_single_head": "models",
    "recover": "recovery",
    "theorem_4_1": "learners",
    "to_torch": "models",
    "witness_pair": "models",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from unsoftmax.errors import ModelFileError, NotRecovered, OracleFault, UnsoftmaxError, UsageError
    from unsoftmax.learners import MultiHeadLearner, SingleHeadLearner, theorem_4_1
    from unsoftmax.ledger import Ledger, Progress
    from unsoftmax.models import (
        Equivalence,
        MultiHead,
        SingleHead,
        equivalent,
        from_torch,
        load,
        random_multi_head,
        random_single_head,
        to_torch,
        witness_pair,
    )
    from unsoftmax.oracles import BoundedInputs, FunctionOracle, Labels, Noisy, Oracle, OracleSpec, Rounded, WithinTolerance
    from unsoftmax.outcomes import Status
    from unsoftmax.recovery import recover
    from unsoftmax.result import Result
    from unsoftmax.targets import as_oracle


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `--help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'unsoftmax' has no attribute {name!r}")
    return getattr(import_module(f"unsoftmax.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
