"""Recover the parameters of attention models from black-box queries, with a certificate and the bill.

>>> import unsoftmax
>>> result = unsoftmax.recover("demo:single-head?d=8&r=2")
>>> str(result.status), result.model.rank
('EXACT', 2)
"""

from __future__ import annotations

__version__ = "0.1.0"

# Nothing is imported here: an interrupt while the command's first line is loaded would print a traceback.
TYPE_CHECKING = False  # type checkers take it for true

_HOMES = {
    "Asker": "ledger",
    "Assumption": "learners",
    "Audit": "audit.pipeline",
    "Bill": "ledger",
    "BoundedInputs": "oracles",
    "BoundedMeter": "meters",
    "CanonicalNetwork": "models",
    "Certificate": "certify",
    "Check": "recovery.check",
    "Claim": "learners",
    "Clipped": "oracles",
    "Cost": "recovery.plan",
    "Defence": "audit.defences.wrappers",
    "Defences": "audit.defences.table",
    "Equivalence": "models",
    "Family": "families",
    "Finding": "answers",
    "FlippedLabels": "oracles",
    "FormMeter": "meters",
    "FunctionOracle": "oracles",
    "HttpOptions": "oracles.http",
    "Known": "learners",
    "Labels": "oracles",
    "LanguageModel": "models",
    "Learned": "learners",
    "Learner": "learners",
    "Ledger": "ledger",
    "LedgerFault": "errors",
    "LedgerRefused": "errors",
    "LowPrecision": "oracles",
    "Meter": "meters",
    "Model": "models",
    "ModelFileError": "errors",
    "MultiHead": "models",
    "MultiHeadLearner": "learners.several_heads",
    "Noisy": "oracles",
    "NotRecovered": "errors",
    "OnnxOracle": "oracles.onnx_file",
    "Oracle": "oracles",
    "OracleFault": "errors",
    "OracleSpec": "oracles",
    "OutsideClass": "outcomes",
    "PlainNetwork": "models",
    "Plan": "recovery.plan",
    "Pool": "oracles.pool",
    "Progress": "ledger",
    "QueryCount": "learners",
    "ReluNetwork": "models",
    "ResidualStack": "models",
    "EncoderBlock": "models",
    "GatedNetwork": "models",
    "Network": "models",
    "ReluNetworkLearner": "learners.relu_network.learner",
    "Result": "recovery.result",
    "Rounded": "oracles",
    "SeparateProcess": "oracles.separate_process",
    "SigmoidMeter": "meters",
    "SingleHead": "models",
    "SingleHeadLearner": "learners.one_head.exact",
    "Size": "learners",
    "Solution": "solvers",
    "Solver": "solvers",
    "Status": "outcomes",
    "TokenHead": "models",
    "TokenHeads": "models",
    "TokenIds": "oracles",
    "TokenPositions": "models",
    "TorchOracle": "oracles.torch_module",
    "Transformer": "models",
    "TransformerLearner": "learners.transformer",
    "UnsoftmaxError": "errors",
    "UsageError": "errors",
    "VectorOutputsLearner": "learners.vector_answers",
    "WithinTolerance": "oracles",
    "appendix_c": "learners.paper.appendix_c",
    "as_oracle": "recovery.inputs.targets",
    "audit_target": "audit.pipeline",
    "check": "recovery.check",
    "clipped": "learners.one_head.clipped",
    "defend": "audit.defences.defend",
    "equivalent": "models",
    "find_vocabulary": "recovery.inputs.vocabulary",
    "fit": "recovery.fit",
    "from_labels": "learners.one_head.labels",
    "from_torch": "models",
    "http_oracle": "oracles.http",
    "identify": "answers",
    "load": "models",
    "low_precision": "learners.one_head.low_precision",
    "milli_2019": "learners.paper.milli",
    "noisy": "learners.one_head.noisy",
    "plain_network": "models",
    "plan": "recovery.plan",
    "random_gpt2": "models",
    "random_language_model": "models",
    "random_multi_head": "models",
    "random_relu_network": "models",
    "random_residual_stack": "models",
    "random_single_head": "models",
    "random_token_heads": "models",
    "random_transformer": "models",
    "recover": "recovery.recover",
    "recover_network": "recovery.network",
    "rounded": "learners.one_head.rounded",
    "theorem_4_1": "learners.paper.theorem_4_1",
    "theorem_5_1": "learners.paper.theorem_5_1",
    "theorem_6_1": "learners.paper.theorem_6_1",
    "theorem_b_1": "learners.paper.theorem_b_1",
    "to_torch": "models",
    "within_tolerance": "learners.one_head.within_tolerance",
    "witness_pair": "models",
    "write_report": "audit.report",
}

if TYPE_CHECKING:  # the same names again, for type checkers
    from typing import Any

    from unsoftmax.answers import Finding as Finding
    from unsoftmax.answers import identify as identify
    from unsoftmax.audit.defences.defend import defend as defend
    from unsoftmax.audit.defences.table import Defences as Defences
    from unsoftmax.audit.defences.wrappers import Defence as Defence
    from unsoftmax.audit.pipeline import Audit as Audit
    from unsoftmax.audit.pipeline import audit_target as audit_target
    from unsoftmax.audit.report import write_report as write_report
    from unsoftmax.certify import Certificate as Certificate
    from unsoftmax.errors import LedgerFault as LedgerFault
    from unsoftmax.errors import LedgerRefused as LedgerRefused
    from unsoftmax.errors import ModelFileError as ModelFileError
    from unsoftmax.errors import NotRecovered as NotRecovered
    from unsoftmax.errors import OracleFault as OracleFault
    from unsoftmax.errors import UnsoftmaxError as UnsoftmaxError
    from unsoftmax.errors import UsageError as UsageError
    from unsoftmax.families import Family as Family
    from unsoftmax.learners import Assumption as Assumption
    from unsoftmax.learners import Claim as Claim
    from unsoftmax.learners import Known as Known
    from unsoftmax.learners import Learned as Learned
    from unsoftmax.learners import Learner as Learner
    from unsoftmax.learners import QueryCount as QueryCount
    from unsoftmax.learners import Size as Size
    from unsoftmax.learners.one_head.clipped import clipped as clipped
    from unsoftmax.learners.one_head.exact import SingleHeadLearner as SingleHeadLearner
    from unsoftmax.learners.one_head.labels import from_labels as from_labels
    from unsoftmax.learners.one_head.low_precision import low_precision as low_precision
    from unsoftmax.learners.one_head.noisy import noisy as noisy
    from unsoftmax.learners.one_head.rounded import rounded as rounded
    from unsoftmax.learners.one_head.within_tolerance import within_tolerance as within_tolerance
    from unsoftmax.learners.paper.appendix_c import appendix_c as appendix_c
    from unsoftmax.learners.paper.milli import milli_2019 as milli_2019
    from unsoftmax.learners.paper.theorem_4_1 import theorem_4_1 as theorem_4_1
    from unsoftmax.learners.paper.theorem_5_1 import theorem_5_1 as theorem_5_1
    from unsoftmax.learners.paper.theorem_6_1 import theorem_6_1 as theorem_6_1
    from unsoftmax.learners.paper.theorem_b_1 import theorem_b_1 as theorem_b_1
    from unsoftmax.learners.relu_network.learner import ReluNetworkLearner as ReluNetworkLearner
    from unsoftmax.learners.several_heads import MultiHeadLearner as MultiHeadLearner
    from unsoftmax.learners.transformer import TransformerLearner as TransformerLearner
    from unsoftmax.learners.vector_answers import VectorOutputsLearner as VectorOutputsLearner
    from unsoftmax.ledger import Asker as Asker
    from unsoftmax.ledger import Bill as Bill
    from unsoftmax.ledger import Ledger as Ledger
    from unsoftmax.ledger import Progress as Progress
    from unsoftmax.meters import BoundedMeter as BoundedMeter
    from unsoftmax.meters import FormMeter as FormMeter
    from unsoftmax.meters import Meter as Meter
    from unsoftmax.meters import SigmoidMeter as SigmoidMeter
    from unsoftmax.models import CanonicalNetwork as CanonicalNetwork
    from unsoftmax.models import EncoderBlock as EncoderBlock
    from unsoftmax.models import Equivalence as Equivalence
    from unsoftmax.models import GatedNetwork as GatedNetwork
    from unsoftmax.models import LanguageModel as LanguageModel
    from unsoftmax.models import Model as Model
    from unsoftmax.models import MultiHead as MultiHead
    from unsoftmax.models import Network as Network
    from unsoftmax.models import PlainNetwork as PlainNetwork
    from unsoftmax.models import ReluNetwork as ReluNetwork
    from unsoftmax.models import ResidualStack as ResidualStack
    from unsoftmax.models import SingleHead as SingleHead
    from unsoftmax.models import TokenHead as TokenHead
    from unsoftmax.models import TokenHeads as TokenHeads
    from unsoftmax.models import TokenPositions as TokenPositions
    from unsoftmax.models import Transformer as Transformer
    from unsoftmax.models import equivalent as equivalent
    from unsoftmax.models import from_torch as from_torch
    from unsoftmax.models import load as load
    from unsoftmax.models import plain_network as plain_network
    from unsoftmax.models import random_gpt2 as random_gpt2
    from unsoftmax.models import random_language_model as random_language_model
    from unsoftmax.models import random_multi_head as random_multi_head
    from unsoftmax.models import random_relu_network as random_relu_network
    from unsoftmax.models import random_residual_stack as random_residual_stack
    from unsoftmax.models import random_single_head as random_single_head
    from unsoftmax.models import random_token_heads as random_token_heads
    from unsoftmax.models import random_transformer as random_transformer
    from unsoftmax.models import to_torch as to_torch
    from unsoftmax.models import witness_pair as witness_pair
    from unsoftmax.oracles import BoundedInputs as BoundedInputs
    from unsoftmax.oracles import Clipped as Clipped
    from unsoftmax.oracles import FlippedLabels as FlippedLabels
    from unsoftmax.oracles import FunctionOracle as FunctionOracle
    from unsoftmax.oracles import Labels as Labels
    from unsoftmax.oracles import LowPrecision as LowPrecision
    from unsoftmax.oracles import Noisy as Noisy
    from unsoftmax.oracles import Oracle as Oracle
    from unsoftmax.oracles import OracleSpec as OracleSpec
    from unsoftmax.oracles import Rounded as Rounded
    from unsoftmax.oracles import TokenIds as TokenIds
    from unsoftmax.oracles import WithinTolerance as WithinTolerance
    from unsoftmax.oracles.http import HttpOptions as HttpOptions
    from unsoftmax.oracles.http import http_oracle as http_oracle
    from unsoftmax.oracles.onnx_file import OnnxOracle as OnnxOracle
    from unsoftmax.oracles.pool import Pool as Pool
    from unsoftmax.oracles.separate_process import SeparateProcess as SeparateProcess
    from unsoftmax.oracles.torch_module import TorchOracle as TorchOracle
    from unsoftmax.outcomes import OutsideClass as OutsideClass
    from unsoftmax.outcomes import Status as Status
    from unsoftmax.recovery.check import Check as Check
    from unsoftmax.recovery.check import check as check
    from unsoftmax.recovery.fit import fit as fit
    from unsoftmax.recovery.inputs.targets import as_oracle as as_oracle
    from unsoftmax.recovery.inputs.vocabulary import find_vocabulary as find_vocabulary
    from unsoftmax.recovery.network import recover_network as recover_network
    from unsoftmax.recovery.plan import Cost as Cost
    from unsoftmax.recovery.plan import Plan as Plan
    from unsoftmax.recovery.plan import plan as plan
    from unsoftmax.recovery.recover import recover as recover
    from unsoftmax.recovery.result import Result as Result
    from unsoftmax.solvers import Solution as Solution
    from unsoftmax.solvers import Solver as Solver


__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `--help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'unsoftmax' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"unsoftmax.{_HOMES[name]}"), name)


def public_homes() -> dict[str, str]:
    """Where each public name lives, as a module of this package; for the reference."""
    return dict(_HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
