"""Encoder blocks from and to torch's nn.TransformerEncoderLayer, and from the BERT and ViT layers of
`transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.conversions.attention_layers import from_torch as heads_from_torch
from unsoftmax.models.conversions.attention_layers import to_torch as heads_to_torch
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts import ACTIVATIONS, Activation, LayerNorm, Norm, RMSNorm, activation_named
from unsoftmax.models.single_head import SingleHead

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["block_from_state", "block_from_torch", "block_to_torch", "from_torch", "to_torch"]

_PROBE = np.linspace(-4.0, 4.0, 33)  # an activation is recognised by its values here
_BERT = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
    "first": "attention.output.LayerNorm",
    "second": "output.LayerNorm",
}
_VIT = {
    "query": "attention.attention.query",
    "key": "attention.attention.key",
    "value": "attention.attention.value",
    "output": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
    "first": "layernorm_before",
    "second": "layernorm_after",
}
_VIT_PROJECTED = _VIT | {
    "query": "attention.q_proj",
    "key": "attention.k_proj",
    "value": "attention.v_proj",
    "output": "attention.o_proj",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
_LAYOUTS = (_BERT, _VIT, _VIT_PROJECTED)


@overload
def from_torch(layer: nn.MultiheadAttention, readout: object = None) -> MultiHead: ...


@overload
def from_torch(layer: nn.TransformerEncoderLayer, readout: None = None) -> EncoderBlock: ...


def from_torch(layer: Any, readout: object = None) -> MultiHead | EncoderBlock:
    """The model of an nn.MultiheadAttention or of an nn.TransformerEncoderLayer, whose last row is answered.

    readout: for attention alone, weights (d,) that make one number of the row.

    >>> import torch
    >>> from_torch(torch.nn.TransformerEncoderLayer(4, 2, 6, norm_first=True, dtype=torch.float64)).width
    4
    """
    if hasattr(layer, "self_attn") and readout is None:
        return block_from_torch(layer)
    return heads_from_torch(layer, readout)


@overload
def to_torch(
    model: MultiHead | SingleHead, n_heads: int | None = None, *, dtype: torch.dtype | str = "float64"
) -> nn.MultiheadAttention: ...


@overload
def to_torch(
    model: EncoderBlock, n_heads: int | None = None, *, dtype: torch.dtype | str = "float64"
) -> nn.TransformerEncoderLayer: ...


def to_torch(
    model: MultiHead | SingleHead | EncoderBlock,
    n_heads: int | None = None,
    *,
    dtype: torch.dtype | str = "float64",
) -> Any:
    """An nn.MultiheadAttention, or an nn.TransformerEncoderLayer, whose last row answers like the model.

    dtype: the format it computes in; `result.arithmetic` is that of a recovered target.
    """
    convert: Any = block_to_torch if isinstance(model, EncoderBlock) else heads_to_torch
    return convert(model, n_heads, dtype=dtype)


def block_from_torch(layer: nn.TransformerEncoderLayer) -> EncoderBlock:
    """The block whose answer is the last row of the layer's output, in evaluation mode and without masks.

    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, dtype=torch.float64).eval()
    >>> X = torch.arange(12.0, dtype=torch.float64).reshape(1, 3, 4)
    >>> bool(np.allclose(block_from_torch(layer)(X.numpy()), layer(X)[:, -1].detach().numpy(), rtol=1e-12))
    True
    """
    for name in ("self_attn", "linear1", "linear2", "norm1", "norm2"):
        if not hasattr(layer, name):
            raise UsageError(f"block_from_torch reads nn.TransformerEncoderLayer, not {type(layer).__name__}")
    up, down = layer.linear1, layer.linear2
    network = Network(
        _array(up.weight),
        _array(down.weight).T,
        None if up.bias is None else _array(up.bias),
        0.0 if down.bias is None else _array(down.bias),
        activation=_recognised(layer.activation),
    )
    norms = [_norm(norm) for norm in (layer.norm1, layer.norm2)]
    return EncoderBlock(heads_from_torch(layer.self_attn), network, *norms, norm_first=bool(layer.norm_first))


def block_to_torch(
    block: EncoderBlock, n_heads: int | None = None, *, dtype: torch.dtype | str = "float64"
) -> nn.TransformerEncoderLayer:
    """An nn.TransformerEncoderLayer (batch_first, evaluation mode) in `dtype` whose last row answers like the
    block.

    The network may have no linear part that reflected neurons do not explain, and the norms must be
    LayerNorms.
    """
    import torch

    if not block.skip or block.readout is not None:
        raise UsageError("nn.TransformerEncoderLayer has both residual connections, and no readout behind it")
    network = block.network.without_linear() if isinstance(block.network, Network) else None
    if network is None:
        raise UsageError(
            "nn.TransformerEncoderLayer has a plain two-layer network: no gates and no linear part"
        )
    if not isinstance(block.first, LayerNorm) or not isinstance(block.second, LayerNorm):
        raise UsageError("nn.TransformerEncoderLayer has two LayerNorms")
    attention = heads_to_torch(block.attention, n_heads, dtype=dtype)
    layer = torch.nn.TransformerEncoderLayer(
        block.width,
        attention.num_heads,
        network.neurons,
        dropout=0.0,
        activation=_torch_activation(network.activation),
        batch_first=True,
        norm_first=block.norm_first,
        dtype=attention.out_proj.weight.dtype,
    ).eval()
    layer.self_attn = attention
    arrays = [
        (layer.linear1.weight, network.A),
        (layer.linear1.bias, network.b),
        (layer.linear2.weight, network.U.T),
        (layer.linear2.bias, np.asarray(network.c)),
    ]
    for there, norm in ((layer.norm1, block.first), (layer.norm2, block.second)):
        there.eps = norm.eps
        arrays += [
            (there.weight, norm.gain),
            (there.bias, np.zeros(block.width) if norm.bias is None else norm.bias),
        ]
    with torch.no_grad():
        for parameter, array in arrays:
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
    return layer


def block_from_state(
    state: Mapping[str, Any], n_heads: int, *, prefix: str = "", activation: str = "gelu", eps: float = 1e-12
) -> EncoderBlock:
    """The block of one BERT layer (post-norm) or ViT layer (pre-norm) in a state dict of `transformers`.

    prefix: what stands before the layer's own names, such as 'encoder.layer.0.'.
    """
    own = {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}
    fitting = [names for names in _LAYOUTS if all(f"{name}.weight" in own for name in names.values())]
    if not fitting:
        raise UsageError(f"no BERT or ViT layer stands under {prefix!r}; pass the prefix of one layer")
    names = fitting[0]
    weights = {key: _array(own[f"{name}.weight"]) for key, name in names.items()}
    biases = {
        key: _array(own[f"{name}.bias"]) if f"{name}.bias" in own else np.zeros(len(weights[key]))
        for key, name in names.items()
    }
    d = len(weights["output"])
    if d % n_heads:
        raise UsageError(f"{n_heads} heads do not divide width {d}")
    r = d // n_heads
    heads = []
    for h in range(n_heads):
        part = slice(h * r, (h + 1) * r)
        heads.append(
            SingleHead.from_projections(
                weights["query"][part].T,
                weights["key"][part].T,
                weights["value"][part].T,
                weights["output"][:, part].T,
                b_Q=biases["query"][part],
                b_V=biases["value"][part],
            )
        )
    network = Network(
        weights["up"],
        weights["down"].T,
        biases["up"],
        biases["down"],
        activation=activation_named(activation),
    )
    norms = [LayerNorm(weights[key], biases[key], eps) for key in ("first", "second")]
    return EncoderBlock(MultiHead(heads, biases["output"]), network, *norms, norm_first=names is not _BERT)


def _array(parameter: Any) -> Array:
    if hasattr(parameter, "detach"):
        parameter = parameter.detach().cpu().double().numpy()
    return np.asarray(parameter, dtype=np.float64)


def _norm(module: Any) -> Norm:
    bias = getattr(module, "bias", None)
    if type(module).__name__ == "RMSNorm":
        eps = module.eps if module.eps is not None else float(np.finfo(np.float64).eps)
        return RMSNorm(_array(module.weight), None, eps)
    return LayerNorm(_array(module.weight), None if bias is None else _array(bias), float(module.eps))


def _recognised(function: Any) -> Activation:
    """The activation of a torch callable, by its values."""
    import torch

    values = function(torch.from_numpy(_PROBE)).numpy()
    for activation in ACTIVATIONS.values():
        if np.allclose(activation(_PROBE), values, rtol=0.0, atol=1e-12):
            return activation
    raise UsageError(f"the layer's activation is none of {', '.join(sorted(ACTIVATIONS))}")


def _torch_activation(activation: Activation) -> Any:
    from functools import partial

    import torch
    from torch.nn import functional

    return {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu-tanh": partial(functional.gelu, approximate="tanh"),
        "silu": functional.silu,
        "tanh": torch.tanh,
        "softplus": functional.softplus,
        "sigmoid": torch.sigmoid,
    }[activation.name]
