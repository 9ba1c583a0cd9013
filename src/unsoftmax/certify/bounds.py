"""The a-posteriori error bound of a model, by family.

The bounds of a family are imported where they are needed: they use its learners.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.certify.single_head_bound import single_head_error_bound, single_head_rounding_limit
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead, Transformer

__all__ = ["error_bound", "left_open", "rounding_in_answers", "rounding_limit"]


def error_bound(asker: Asker, model: Model, rng: np.random.Generator) -> float | None:
    """A bound on the relative error of the parameters, measured on fresh queries; None where no such bound is
    known."""
    if model.outputs is not None and isinstance(model, SingleHead | MultiHead):
        from unsoftmax.certify.vector_bound import vector_error_bound

        return vector_error_bound(asker, model, rng)
    if isinstance(model, SingleHead):
        return single_head_error_bound(asker, model, rng)
    if isinstance(model, Transformer):
        from unsoftmax.certify.transformer_bound import transformer_error_bound

        return transformer_error_bound(asker, model, rng)
    if isinstance(model, MultiHead):
        from unsoftmax.certify.multi_head_bound import multi_head_error_bound

        return multi_head_error_bound(asker, model, rng)
    return None


def rounding_limit(model: Model, input_bound: float | None) -> float:
    """The relative error that float64 rounding alone explains for this model; 0 where nothing is known about
    it."""
    if isinstance(model, SingleHead) and model.outputs is not None:
        read = SingleHead(model.matrix, model.v @ _weights(model.outputs), model.w0)
        # short rows leave open of a head read by numbers what they leave open of it read by vectors
        shortly = 0.0 if input_bound is None else single_head_rounding_limit(read, input_bound)
        return max(_limit_of_heads(MultiHead([model])), shortly)
    if isinstance(model, SingleHead):
        return single_head_rounding_limit(model, input_bound)
    if isinstance(model, Transformer):
        from unsoftmax.certify.transformer_bound import transformer_rounding_limit

        return transformer_rounding_limit(model, input_bound)
    if isinstance(model, MultiHead):
        return _limit_of_heads(model)
    return 0.0


def rounding_in_answers(model: Model, input_bound: float | None) -> float:
    """How far answers of such a model may be off, relative to what they could show: less than
    `rounding_limit` where one of several heads is faint."""
    if isinstance(model, MultiHead):
        return _limit_of_heads(model, in_answers=True)
    return rounding_limit(model, input_bound)


def left_open(asker: Asker, model: Model) -> float:
    """The relative error of the parameters that rounding leaves open because heads hardly differ, as where
    rows may be no longer; 0 where that is not known, or `rounding_limit` tells it. Asks nothing."""
    if not isinstance(model, MultiHead):
        return 0.0
    from unsoftmax.certify.joint_bound import left_open_by_heads

    if model.outputs is None:
        return left_open_by_heads(asker, model)
    weights = _weights(model.outputs)
    heads = [SingleHead(head.matrix, head.v @ weights, head.w0) for head in model.heads]
    return left_open_by_heads(asker.read(weights), MultiHead(heads))


def _limit_of_heads(model: MultiHead, *, in_answers: bool = False) -> float:
    from unsoftmax.certify.multi_head_bound import multi_head_rounding_limit

    return multi_head_rounding_limit(model, in_answers=in_answers)


def _weights(outputs: int) -> Array:
    """A readout of vector answers by one number; nothing is asked."""
    return np.random.default_rng(0).standard_normal(outputs)
