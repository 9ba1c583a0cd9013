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
    "Certificate": "certify",
    "FunctionOracle": "oracles",
    "Labels": "oracles",
    "Ledger": "ledger",
    "ModelFileError": "errors",
    "Noisy": "oracles",
    "NotRecovered": "errors",
    "Oracle": "oracles",
    "OracleFault": "errors",
    "OracleSpec": "oracles",
    "OutsideClass": "outcomes",
    "Plan": "planning",
    "Progress": "ledger",
    "Result": "result",
    "Rounded": "oracles",
    "SeparateProcess": "oracles.separate_process",
    "SigmoidMeter": "meters",
    "SingleHead": "models",
    "SingleHeadLearner": "learners",
    "Status": "outcomes",
    "UnsoftmaxError": "errors",
    "UsageError": "errors",
    "WithinTolerance": "oracles",
    "as_oracle": "targets",
    "load": "models",
    "plan": "planning",
    "random_single_head": "models",
    "recover": "recovery",
    "theorem_4_1": "learners",
    "theorem_5_1": "learners",
}

if TYPE_CHECKING:  # the same names again, for type checkers
    from unsoftmax.certify import Certificate as Certificate
    from unsoftmax.errors import ModelFileError as ModelFileError
    from unsoftmax.errors import NotRecovered as NotRecovered
    from unsoftmax.errors import OracleFault as OracleFault
    from unsoftmax.errors import UnsoftmaxError as UnsoftmaxError
    from unsoftmax.errors import UsageError as UsageError
    from unsoftmax.learners import SingleHeadLearner as SingleHeadLearner
    from unsoftmax.learners import theorem_4_1 as theorem_4_1
    from unsoftmax.learners import theorem_5_1 as theorem_5_1
    from unsoftmax.ledger import Ledger as Ledger
    from unsoftmax.ledger import Progress as Progress
    from unsoftmax.meters import SigmoidMeter as SigmoidMeter
    from unsoftmax.models import SingleHead as SingleHead
    from unsoftmax.models import load as load
    from unsoftmax.models import random_single_head as random_single_head
    from unsoftmax.oracles import BoundedInputs as BoundedInputs
    from unsoftmax.oracles import FunctionOracle as FunctionOracle
    from unsoftmax.oracles import Labels as Labels
    from unsoftmax.oracles import Noisy as Noisy
    from unsoftmax.oracles import Oracle as Oracle
    from unsoftmax.oracles import OracleSpec as OracleSpec
    from unsoftmax.oracles import Rounded as Rounded
    from unsoftmax.oracles import WithinTolerance as WithinTolerance
    from unsoftmax.oracles.separate_process import SeparateProcess as SeparateProcess
    from unsoftmax.outcomes import OutsideClass as OutsideClass
    from unsoftmax.outcomes import Status as Status
    from unsoftmax.planning import Plan as Plan
    from unsoftmax.planning import plan as plan
    from unsoftmax.recovery import recover as recover
    from unsoftmax.result import Result as Result
    from unsoftmax.targets import as_oracle as as_oracle


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `--help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'unsoftmax' has no attribute {name!r}")
    return getattr(import_module(f"unsoftmax.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOMES])
