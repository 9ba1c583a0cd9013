"""What the package `transformers` calls activations."""

from __future__ import annotations

from unsoftmax.errors import UsageError
from unsoftmax.models.parts import GELU, GELU_TANH, RELU, SILU, Activation

__all__ = ["from_hidden_act", "to_hidden_act"]

_NAMES = {
    "silu": SILU,
    "swish": SILU,
    "gelu_new": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "gelu": GELU,
    "relu": RELU,
}


def from_hidden_act(name: str) -> Activation:
    """The activation of a configuration.

    >>> from_hidden_act("silu").name
    'silu'
    """
    if name not in _NAMES:
        raise UsageError(
            f"the activation {name!r} is not supported; choose one of {', '.join(sorted(_NAMES))}"
        )
    return _NAMES[name]


def to_hidden_act(activation: Activation) -> str:
    """The name in a configuration."""
    for name, known in _NAMES.items():
        if known.name == activation.name:
            return name
    raise UsageError(
        f"the package transformers has no activation {activation.name!r}; save this model with .save"
    )
