"""The a-posteriori error bound of a model, by family."""

from __future__ import annotations

import numpy as np

from unsoftmax.certify.single_head_bound import single_head_error_bound
from unsoftmax.certify.transformer_bound import transformer_error_bound
from unsoftmax.ledger import Ledger
from unsoftmax.models import Model, SingleHead, Transformer

__all__ = ["error_bound"]


def error_bound(ledger: Ledger, model: Model, rng: np.random.Generator) -> float | None:
    """A bound on the relative error of the parameters, measured on fresh queries; None where no such bound is known."""
    if isinstance(model, SingleHead):
        return single_head_error_bound(ledger, model, rng)
    if isinstance(model, Transformer):
        return transformer_error_bound(ledger, model, rng)
    return None
