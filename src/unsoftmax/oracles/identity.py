"""Which target is it? A text that a ledger is bound to, so that answers of one target are never replayed for
another."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.oracles.base import Oracle, OracleSpec
from unsoftmax.oracles.function import FunctionOracle

__all__ = ["content_fingerprint", "identity", "pins_content"]

_CONTENT = "content:"


def identity(oracle: Oracle) -> str:
    """The target's identity: 'content:...' where it pins the function itself (a file, a model), a name where
    nothing more can be known.

    >>> def answer(X): return X[:, -1, 0]
    >>> identity(FunctionOracle(answer)).endswith("answer")
    True
    """
    if oracle.spec.fingerprint is not None and not hasattr(oracle, "inner"):
        return oracle.spec.fingerprint
    inner = getattr(oracle, "inner", None)
    if inner is not None:
        options = ",".join(
            f"{name}={value!r}"
            for name, value in sorted(vars(oracle).items())
            if not name.startswith("_") and name != "inner"
        )
        return f"{identity(inner)}|{type(oracle).__name__}({options})"
    function: Any = oracle.function if isinstance(oracle, FunctionOracle) else oracle
    if function is not oracle and isinstance(getattr(function, "spec", None), OracleSpec):
        return identity(function)
    tensors = getattr(function, "tensors", None)
    if callable(tensors):
        return content_fingerprint(tensors(), f"{type(function).__name__}:{getattr(function, 'family', '')}")
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"name:{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}:{oracle.spec.name}"


def pins_content(fingerprint: str) -> bool:
    """Whether the fingerprint determines the function, rather than only naming the target.

    >>> pins_content("content:1f|Rounded(decimals=3)"), pins_content("name:module.function:target")
    (True, False)
    """
    return fingerprint.startswith(_CONTENT)


def content_fingerprint(tensors: Mapping[str, Array], label: str = "") -> str:
    """A fingerprint of named arrays, whatever their order.

    >>> content_fingerprint({"a": np.ones(2)}) == content_fingerprint({"a": np.ones(
    ...     2)}) != content_fingerprint({"a": np.zeros(2)})
    True
    """
    digest = blake2b(label.encode(), digest_size=16)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"|{name}:{array.dtype}:{array.shape}|".encode())
        digest.update(array.tobytes())
    return _CONTENT + digest.hexdigest()
