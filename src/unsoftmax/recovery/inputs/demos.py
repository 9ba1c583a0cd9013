"""Targets that are made up: 'demo:single-head?d=64&r=8&seed=0' and its kind."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import parse_qsl

from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.models import Model, random_multi_head, random_single_head, random_transformer
from unsoftmax.recovery.inputs.token_targets import demo_tokens

__all__ = ["demo_model"]

_LEAST = {"d": 1, "r": 0, "heads": 1, "m": 1, "outputs": 1, "seed": 0, "biases": 0}
_LARGEST = 1 << 28  # numbers in a demo, 2 GB: a laptop holds it, and it is found out before it is allocated


def demo_model(spec: str) -> Model:
    """The model of a demo target such as 'demo:single-head?d=64&r=8&seed=0' (also scale=, biases=1), or
    'demo:multi-head?d=64&heads=8' (also r=, scale=, biases=1, outputs=m), or 'demo:transformer?d=32&m=64'
    (also r=, scale=, biases=1, residual=1), or 'demo:tokens?V=500&r=8' (see `demo_tokens`).

    >>> demo_model("demo:single-head?d=6&r=2").parameters
    26
    """
    name, _, query = spec.removeprefix("demo:").partition("?")
    if name == Family.TOKENS:
        return demo_tokens(spec)
    if name not in (Family.SINGLE_HEAD, Family.MULTI_HEAD, Family.TRANSFORMER):
        raise UsageError(
            f"there is no demo {name!r}; try 'demo:single-head?d=64&r=8&seed=0', "
            "'demo:multi-head?d=64&heads=8&seed=0', 'demo:transformer?d=32&m=64&seed=0' or "
            "'demo:tokens?V=500&r=8&seed=0'"
        )
    options: dict[str, Any] = {"d": 64, "r": None, "seed": 0, "scale": 1.0, "biases": 0}
    if name == Family.MULTI_HEAD:
        options |= {"heads": 8, "outputs": None}
    if name == Family.TRANSFORMER:
        options |= {"m": None, "residual": 0.0}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise UsageError(f"the demo target has no option {key!r}; it takes {', '.join(options)}")
        options[key] = _number(key, text)
    _check_size(options)
    biases = bool(options.pop("biases"))
    d, r = options.pop("d"), options.pop("r")
    if name == Family.MULTI_HEAD:
        return random_multi_head(d, options.pop("heads"), r, biases=biases, **options)
    if name == Family.TRANSFORMER:
        m = options.pop("m")
        return random_transformer(d, d if m is None else m, r, biases=biases, **options)
    return random_single_head(d, r, seed=options["seed"], scale=options["scale"], biases=biases)


def _number(key: str, text: str) -> float:
    """The value of one option, within its limits."""
    try:
        value = float(text) if key in ("scale", "residual") else int(text)
    except ValueError:
        raise UsageError(
            f"the demo target's {key}={text[:50]!r} is not a number; write for instance {key}=8"
        ) from None
    least = _LEAST.get(key, -math.inf)
    if not math.isfinite(value) or value < least:
        wanted = "a finite number" if key not in _LEAST else f"at least {least}"
        raise UsageError(f"the demo target's {key}={text[:50]} must be {wanted}")
    return value


def _check_size(options: dict[str, Any]) -> None:
    d, rank = options["d"], options["r"]
    each = d * d if rank is None else 2 * d * rank
    n_numbers = (
        each * options.get("heads", 1) + d * (options.get("m") or 0) + d * (options.get("outputs") or 1)
    )
    if n_numbers > _LARGEST:
        raise UsageError(
            f"a demo of {n_numbers:.2g} numbers does not fit into memory; at most {_LARGEST:,} are made"
        )
