"""Parts that several models share: norms and activations."""

from unsoftmax.models.parts.activations import (
    ACTIVATIONS,
    GELU,
    GELU_TANH,
    RELU,
    SIGMOID,
    SILU,
    SOFTPLUS,
    TANH,
    Activation,
    Reflection,
    activation_named,
)
from unsoftmax.models.parts.norms import LayerNorm, Norm, RMSNorm, centred

__all__ = [
    "ACTIVATIONS",
    "GELU",
    "GELU_TANH",
    "RELU",
    "SIGMOID",
    "SILU",
    "SOFTPLUS",
    "TANH",
    "Activation",
    "LayerNorm",
    "Norm",
    "RMSNorm",
    "Reflection",
    "activation_named",
    "centred",
]
