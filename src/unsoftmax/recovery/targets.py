"""What a user may point at, turned into an oracle: a callable, a model, a torch module, a file, an address,
`package.module:name`, or a demo."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from unsoftmax.errors import UsageError
from unsoftmax.models import (
    Model,
    ReluNetwork,
    load,
    random_multi_head,
    random_single_head,
    random_transformer,
)
from unsoftmax.oracles import FunctionOracle, Oracle, OracleSpec

__all__ = ["as_oracle", "demo_model"]

_FORMS = (
    "a callable (B, N, d) -> (B,), a model, a torch module, 'demo:single-head?d=64&r=8&seed=0', a "
    ".safetensors or .onnx file, "
    "'http(s)://host/v2/models/NAME', a .json file that describes an endpoint, or 'package.module:callable'"
)


def as_oracle(target: object, *, outputs: int | None = None, http: Mapping[str, Any] | None = None) -> Oracle:
    """The oracle behind a target. `http`: options for a target behind a web address, by the names of
    `HttpOptions`.

    >>> as_oracle("demo:single-head?d=8&seed=3").spec.width
    8
    """
    if isinstance(target, str | Path):
        return _with_outputs(_named(str(target), http), outputs)
    if isinstance(target, Model):
        return _of_model(target, type(target).__name__)
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


def demo_model(spec: str) -> Model:
    """The model of a demo target such as 'demo:single-head?d=64&r=8&seed=0' (also scale=, biases=1), or
    'demo:multi-head?d=64&heads=8' (also r=, scale=, biases=1, outputs=m), or 'demo:transformer?d=32&m=64'
    (also r=, scale=, biases=1, residual=1).

    >>> demo_model("demo:single-head?d=6&r=2").parameters
    26
    """
    name, _, query = spec.removeprefix("demo:").partition("?")
    if name not in ("single-head", "multi-head", "transformer"):
        raise UsageError(
            f"there is no demo {name!r}; try 'demo:single-head?d=64&r=8&seed=0', "
            "'demo:multi-head?d=64&heads=8&seed=0' "
            "or 'demo:transformer?d=32&m=64&seed=0'"
        )
    options: dict[str, Any] = {"d": 64, "r": None, "seed": 0, "scale": 1.0, "biases": 0}
    if name == "multi-head":
        options |= {"heads": 8, "outputs": None}
    if name == "transformer":
        options |= {"m": None, "residual": 0.0}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise UsageError(f"the demo target has no option {key!r}; it takes {', '.join(options)}")
        try:
            options[key] = float(text) if key in ("scale", "residual") else int(text)
        except ValueError:
            raise UsageError(
                f"the demo target's {key}={text!r} is no number; write for instance {key}=8"
            ) from None
    biases = bool(options.pop("biases"))
    if name == "multi-head":
        return random_multi_head(
            options.pop("d"), options.pop("heads"), options.pop("r"), biases=biases, **options
        )
    if name == "transformer":
        d, m = options.pop("d"), options.pop("m")
        return random_transformer(d, d if m is None else m, options.pop("r"), biases=biases, **options)
    return random_single_head(
        options["d"], options["r"], seed=options["seed"], scale=options["scale"], biases=biases
    )


def _of_model(model: Model, name: str) -> Oracle:
    """The oracle of a model; a network alone takes single rows only."""
    alone = 1 if isinstance(model, ReluNetwork) else None
    return FunctionOracle(
        model, OracleSpec(width=model.width, outputs=model.outputs, max_length=alone, name=name)
    )


def _named(target: str, http: Mapping[str, Any] | None) -> Oracle:
    if target.startswith(("http://", "https://")) or target.endswith(".json"):
        return _served(target, http)
    if http:
        raise UsageError(
            f"{next(iter(http))} is an option for web addresses, and {target!r} is none; leave it out"
        )
    if target.startswith("demo:"):
        return _of_model(demo_model(target), target)
    if target.endswith(".safetensors"):
        return _of_model(load(target), Path(target).name)
    if target.endswith(".onnx"):
        from unsoftmax.oracles.onnx_file import OnnxOracle

        return OnnxOracle(target)
    module, colon, attribute = target.partition(":")
    if colon and attribute and "/" not in target:
        return _imported(module, attribute)
    if Path(target).exists():
        raise UsageError(f"{target} is no model file that this library reads; a target is {_FORMS}")
    raise UsageError(f"{target!r} names no target; a target is {_FORMS}")


def _served(target: str, http: Mapping[str, Any] | None) -> Oracle:
    """The server at an address, or at the one that an endpoint file names."""
    from unsoftmax.oracles.http import HttpOptions, http_oracle
    from unsoftmax.oracles.http.options import read_endpoint_file

    url, options = read_endpoint_file(target) if target.endswith(".json") else (target, HttpOptions())
    return http_oracle(url, replace(options, **(http or {})))


def _imported(module: str, attribute: str) -> Oracle:
    """The callable of `package.module:name`; the working directory is searched too, as `python -m` does."""
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module!r}: {error}; is it installed, or are you in the right directory?"
        ) from error
    except AttributeError as error:
        raise UsageError(f"{module!r} has no {attribute!r}") from error
    finally:
        sys.path.remove(os.getcwd())
    return as_oracle(found)


def _with_outputs(oracle: Oracle, outputs: int | None) -> Oracle:
    if outputs is None or oracle.spec.outputs == outputs:
        return oracle
    if oracle.spec.outputs is not None:
        raise UsageError(
            f"outputs={outputs}, but the target has {oracle.spec.outputs}; pass outputs={oracle.spec.outputs}"
        )
    return FunctionOracle(oracle, replace(oracle.spec, outputs=outputs))
