"""What a user may point at, turned into an oracle: a callable, a model, a torch module, a file, an address,
`package.module:name`, or a demo."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arrays import Array, read_npy, real_numbers
from unsoftmax.errors import UsageError, brief
from unsoftmax.importing import import_attribute
from unsoftmax.models import LanguageModel, Model, ReluNetwork, TokenHeads, load
from unsoftmax.oracles import FunctionOracle, Oracle, OracleSpec
from unsoftmax.oracles.answer_row import AnswerRow, Row, check_row
from unsoftmax.oracles.base import TellsOutputs
from unsoftmax.oracles.logits import Logits
from unsoftmax.oracles.transformers_model import TransformersOracle, is_language_model
from unsoftmax.recovery.inputs.demos import demo_model
from unsoftmax.recovery.inputs.token_targets import of_token_model, with_vocabulary

__all__ = ["as_oracle", "demo_model"]

_FORMS = (
    "a callable (B, N, d) -> (B,), a model, a torch module, 'demo:single-head?d=64&r=8&seed=0', a "
    ".safetensors or .onnx file, 'http(s)://host/v2/models/NAME', 'grpc(s)://host:port/v2/models/NAME', "
    "'openai+http(s)://host/v1?model=NAME', a .json file that describes an endpoint, or "
    "'package.module:callable'"
)


def as_oracle(
    target: object,
    *,
    outputs: int | None = None,
    http: Mapping[str, Any] | None = None,
    vocabulary: int | None = None,
    row: str | None = None,
    readout: object = None,
    probabilities: bool = False,
) -> Oracle:
    """The oracle behind a target. `http`: options for a target behind a web address, by the names of
    `HttpOptions`. vocabulary: number of token ids, for a target that takes ids (B, N). row: which row of an
    answer (B, N, m) to read: last, first, mean or all. readout: (m,) or a .npy file, for one number.
    probabilities: answers are probabilities, and their logits are asked for.

    >>> as_oracle("demo:single-head?d=8&seed=3").spec.width
    8
    """
    if probabilities and not isinstance(target, Logits):
        read = as_oracle(target, outputs=outputs, http=http, vocabulary=vocabulary, row=row, readout=readout)
        return Logits(read)
    if row is not None or readout is not None:
        return with_vocabulary(_read(target, outputs, check_row(row), readout), vocabulary)
    return with_vocabulary(_any_oracle(target, outputs, http), vocabulary)


def _read(target: object, outputs: int | None, row: Row | None, readout: object) -> Oracle:
    """One row of the answers, or a readout of them: for targets that are asked in this process."""
    weights = None if readout is None else _numbers(readout)
    inner = _any_oracle(target, None, None)
    function = getattr(inner, "raw", None) or getattr(inner, "function", None)
    if not callable(function):
        raise UsageError(
            "row and readout are for callables and torch modules; let any other target answer (B,) or (B, m)"
        )
    if getattr(inner, "answers_every_row", False):
        row = row or "last"
        if row != "all" and outputs is None:
            outputs = inner.spec.outputs
    return AnswerRow(function, replace(inner.spec, outputs=outputs), row, weights)


def _numbers(readout: object) -> Array:
    """A readout as it is, or from a .npy file."""
    named = isinstance(readout, str | Path)
    try:
        weights = real_numbers(read_npy(readout) if isinstance(readout, str | Path) else readout)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the readout{f' {readout}' if named else ''}: {reason}") from error
    if not np.isfinite(weights).all():
        raise UsageError("the readout holds NaN or infinity")
    return weights


def _any_oracle(target: object, outputs: int | None, http: Mapping[str, Any] | None) -> Oracle:
    if isinstance(target, str | Path):
        return _with_outputs(_named(str(target), http, outputs), outputs)
    if isinstance(target, Model):
        return _of_model(target, type(target).__name__)
    if is_language_model(target):
        return TransformersOracle(target)
    torch = sys.modules.get("torch")  # whoever passes a module has imported it
    if torch is not None and isinstance(target, torch.nn.Module):
        from unsoftmax.oracles.torch_module import TorchOracle

        return TorchOracle(target, outputs=outputs)
    if isinstance(target, type):
        raise UsageError(f"the target is the class {target.__name__}; pass an instance or a function")
    if isinstance(target, Oracle) and isinstance(target.spec, OracleSpec):
        return _with_outputs(target, outputs)
    if callable(target):
        return FunctionOracle(
            target, OracleSpec(outputs=outputs, name=getattr(target, "__qualname__", type(target).__name__))
        )
    raise UsageError(f"a target is {_FORMS}, not {type(target).__name__}")


def _of_model(model: Model, name: str) -> Oracle:
    """The oracle of a model; a network alone takes single rows only."""
    if isinstance(model, TokenHeads):
        return of_token_model(model, name)
    alone = 1 if isinstance(model, ReluNetwork) else None
    spoken = isinstance(model, LanguageModel)
    longest = model.max_length if isinstance(model, LanguageModel) else alone
    return FunctionOracle(
        model,
        OracleSpec(
            width=model.width, outputs=model.outputs, max_length=longest, name=name, log_probabilities=spoken
        ),
    )


def _named(target: str, http: Mapping[str, Any] | None, outputs: int | None) -> Oracle:
    if target.startswith(("openai+http://", "openai+https://")):
        from unsoftmax.oracles.http import HttpOptions
        from unsoftmax.oracles.http.completions import completions_oracle

        return completions_oracle(target, HttpOptions(**(http or {})))
    if target.startswith(("grpc://", "grpcs://")):
        return _called(target, http, outputs)
    if target.startswith(("http://", "https://")) or target.endswith(".json"):
        return _served(target, http, outputs)
    if http:
        raise UsageError(
            f"{next(iter(http))} is an option for web addresses, and {brief(target)!r} is none; leave it out"
        )
    if target.startswith("demo:"):
        return _of_model(demo_model(target), target)
    if target.endswith(".safetensors"):
        return _of_model(load(target), Path(target).name)
    if target.endswith(".onnx"):
        from unsoftmax.oracles.onnx_file import OnnxOracle

        return OnnxOracle(target)
    module, colon, attribute = target.partition(":")
    if module and colon and attribute.isdigit():
        raise UsageError(
            f"{brief(target)!r} looks like the address of a server; write "
            f"'http://{brief(target)}/v2/models/NAME', or another of its addresses"
        )
    if module and colon and attribute and "/" not in target:
        return as_oracle(import_attribute(target), outputs=outputs)
    if Path(target).exists():
        if target.endswith(".py"):
            raise UsageError(
                f"{target} is Python code; name a function in it, such as '{Path(target).stem}:FUNCTION'"
            )
        raise UsageError(f"cannot read {target} as a model file; a target is {_FORMS}")
    raise UsageError(f"{brief(target)!r} names no target; a target is {_FORMS}")


def _called(target: str, http: Mapping[str, Any] | None, outputs: int | None) -> Oracle:
    """The model behind a gRPC address."""
    try:
        from unsoftmax.oracles.grpc import grpc_oracle
    except ImportError as error:
        raise UsageError(
            f"{brief(target)!r} needs grpcio and protobuf; pip install 'unsoftmax[grpc]'"
        ) from error
    from unsoftmax.oracles.http import HttpOptions

    return grpc_oracle(target, HttpOptions(**(http or {})), outputs=outputs)


def _served(target: str, http: Mapping[str, Any] | None, outputs: int | None) -> Oracle:
    """The server at an address, or at the one that an endpoint file names."""
    from unsoftmax.oracles.http import HttpOptions, http_oracle
    from unsoftmax.oracles.http.options import read_endpoint_file

    url, options = read_endpoint_file(target) if target.endswith(".json") else (target, HttpOptions())
    return http_oracle(url, replace(options, **(http or {})), outputs=outputs)


def _with_outputs(oracle: Oracle, outputs: int | None) -> Oracle:
    if outputs is None or oracle.spec.outputs == outputs:
        return oracle
    if oracle.spec.outputs is not None:
        raise UsageError(
            f"outputs={outputs}, but the target has {oracle.spec.outputs}; pass outputs={oracle.spec.outputs}"
        )
    if isinstance(oracle, TellsOutputs):
        return oracle.with_outputs(outputs)
    return FunctionOracle(oracle, replace(oracle.spec, outputs=outputs))
