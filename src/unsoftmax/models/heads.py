"""The heads of a model, for pictures and reports."""

from __future__ import annotations

from unsoftmax.arrays import Array
from unsoftmax.models.base import Model
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.transformer import Transformer

__all__ = ["heads_of"]


def heads_of(model: Model | None) -> list[tuple[str, Array, Array | None]]:
    """Name, W and v of every head; none for families whose heads are not matrices of this kind."""
    if isinstance(model, EncoderBlock):
        return heads_of(model.attention)
    if isinstance(model, MultiHead):
        return [(f"head {index + 1}", head.W, head.v) for index, head in enumerate(model.heads)]
    if isinstance(model, SingleHead):
        return [("W", model.W, model.v)]
    return [("W", model.W, None)] if isinstance(model, Transformer) else []
