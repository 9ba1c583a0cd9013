"""What a decoder does to prompts of one row: heads see that row alone, so that attention is a linear path."""

from __future__ import annotations

import numpy as np

from unsoftmax.models.language_model import LanguageModel
from unsoftmax.models.residual_stack.model import ResidualStack, StackLayer

__all__ = ["one_row_stack"]


def one_row_stack(model: LanguageModel) -> ResidualStack:
    """The stack of a decoder without biases and positions of its own.

    >>> from unsoftmax.models import random_language_model
    >>> one_row_stack(random_language_model(8, 3, layers=2, seed=0)).neurons
    [3, 3]
    """
    true, layers = model.canonical(), []
    for layer in true.layers:
        part = layer.attention
        values = part.value.reshape(part.groups, part.head_width, -1)
        path = part.output @ np.repeat(values, part.shared_by, axis=0).reshape(-1, part.width)
        layers.append(StackLayer(layer.network_norm, layer.network, layer.attention_norm, path))
    return ResidualStack(layers, true.final_norm)
