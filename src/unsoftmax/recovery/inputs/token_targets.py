"""Targets that take token ids: how many there are, and demos."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models import TokenHead, TokenHeads, random_token_heads
from unsoftmax.oracles import FunctionOracle, Oracle, OracleSpec, TokenIds, check_vocabulary

__all__ = ["demo_tokens", "of_token_model", "with_padding", "with_vocabulary"]


def with_vocabulary(oracle: Oracle, vocabulary: int | None) -> Oracle:
    """The oracle as one that takes the token ids 0 to vocabulary - 1; the same one where None is given.

    >>> with_vocabulary(FunctionOracle(lambda ids: ids.mean(axis=1)), 9).spec.domain
    TokenIds(vocabulary=9)
    """
    told = oracle.spec.domain
    if vocabulary is None:
        return oracle
    size = check_vocabulary(vocabulary)
    if isinstance(told, TokenIds) and size > told.vocabulary:
        raise UsageError(f"vocabulary {size}, but the target has {told.vocabulary} tokens; pass at most that")
    if oracle.spec.width is not None:
        raise UsageError(
            f"the target takes rows of {oracle.spec.width} numbers, not token ids; leave out vocabulary"
        )
    return FunctionOracle(oracle, replace(oracle.spec, domain=TokenIds(size)))


def with_padding(model: TokenHeads, padding: int) -> TokenHeads:
    """The model with a row of zeros for the padding id, which is never asked."""

    def longer(part: Array) -> Array:
        return np.insert(part, padding, 0.0, axis=0)

    heads = [
        TokenHead(longer(head.keys), longer(head.queries), longer(head.values), head.positions)
        for head in model.heads
    ]
    return TokenHeads(heads, model.c)


def of_token_model(model: TokenHeads, name: str) -> Oracle:
    """The oracle of a model over tokens."""
    domain = TokenIds(model.vocabulary)
    return FunctionOracle(
        model, OracleSpec(outputs=model.outputs, max_length=model.longest, name=name, domain=domain)
    )


def demo_tokens(spec: str) -> TokenHeads:
    """The model of 'demo:tokens?V=500&r=8&seed=0' (also heads=, scale=, outputs=m, longest=L for positions).

    >>> demo_tokens("demo:tokens?V=30&r=2").parameters
    144
    """
    options: dict[str, Any] = {
        "V": 500,
        "r": 8,
        "heads": 1,
        "seed": 0,
        "scale": 1.0,
        "outputs": None,
        "longest": None,
    }
    for key, text in parse_qsl(spec.partition("?")[2], keep_blank_values=True):
        if key not in options:
            raise UsageError(f"the demo target has no option {key!r}; it takes {', '.join(options)}")
        try:
            options[key] = float(text) if key == "scale" else int(text)
        except ValueError:
            raise UsageError(
                f"the demo target's {key}={text!r} is not a number; write for instance {key}=8"
            ) from None
    return random_token_heads(options.pop("V"), options.pop("r"), **options)
