"""Ledgers in front of decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unsoftmax.ledger import Ledger
from unsoftmax.models.language_model import LanguageModel
from unsoftmax.oracles import FunctionOracle, OracleSpec


def asked(
    model: LanguageModel, function: Callable[..., Any] | None = None, budget: int | None = None
) -> Ledger:
    """A ledger that asks the model, or `function` in its place."""
    spec = OracleSpec(width=model.width, outputs=model.outputs, max_length=model.max_length)
    return Ledger(FunctionOracle(model if function is None else function, spec), budget=budget)
