"""A decoder as named arrays: kinds of norms and activations are part of the names, sizes are arrays of shape
()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError
from unsoftmax.models.language_model.parts import (
    Attention,
    DecoderLayer,
    FeedForward,
    GatedNetwork,
    LearnedPositions,
    Network,
    Positions,
    Rotary,
)
from unsoftmax.models.parts import LayerNorm, Norm, RMSNorm, activation_named

if TYPE_CHECKING:
    from unsoftmax.models.language_model.model import LanguageModel

__all__ = [
    "check_widths",
    "layer_from",
    "network_from",
    "network_tensors",
    "norm_from",
    "norm_tensors",
    "positions_from",
    "to_tensors",
]

_NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
_BIASES = ("query_bias", "key_bias", "value_bias", "output_bias")
_MATRICES = ("query", "key", "value", "output")
_NETWORKS: dict[type[GatedNetwork] | type[FeedForward], tuple[str, ...]] = {
    GatedNetwork: ("gate", "up", "down"),
    FeedForward: ("inner", "inner_bias", "outer", "outer_bias"),
}


def check_widths(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a file whose matrices disagree on the width."""
    width = shapes.get("unembedding", (0, 0))[-1:]
    for name, shape in shapes.items():
        if name.endswith(".gain") and shape != width:
            raise ModelFileError(
                f"tensor {name!r} has shape {shape}; to fit the unembedding it must be {width}"
            )


def to_tensors(model: LanguageModel) -> dict[str, Array]:
    """All arrays of the model by name."""
    out: dict[str, Array] = {"unembedding": model.unembedding} | norm_tensors("final_norm", model.final_norm)
    if model.embedding is not None:
        out["embedding"] = model.embedding
    if isinstance(model.positions, Rotary):
        out["positions.theta"] = np.array(model.positions.theta)
    elif isinstance(model.positions, LearnedPositions):
        out["positions.table"] = model.positions.table
    for number, layer in enumerate(model.layers):
        name = f"layers.{number}."
        out |= norm_tensors(f"{name}attention_norm", layer.attention_norm)
        out |= norm_tensors(f"{name}network_norm", layer.network_norm)
        part = layer.attention
        arrays = {key: getattr(part, key) for key in (*_MATRICES, *_BIASES)}
        arrays |= {"heads": np.array(float(part.heads)), "groups": np.array(float(part.groups))}
        out |= {f"{name}attention.{key}": array for key, array in arrays.items() if array is not None}
        out |= network_tensors(name, layer.network)
    return out


def network_tensors(name: str, network: Network) -> dict[str, Array]:
    """The arrays of the network of the layer `name`."""
    kind = f"{name}network.{network.activation.name}."
    return {kind + key: getattr(network, key) for key in _NETWORKS[type(network)]}


def norm_tensors(name: str, norm: Norm) -> dict[str, Array]:
    """The arrays of a norm, its kind in their names."""
    kind = next(kind for kind, cls in _NORMS.items() if type(norm) is cls)
    out = {f"{name}.{kind}.gain": norm.gain, f"{name}.{kind}.eps": np.array(norm.eps)}
    return out if norm.bias is None else out | {f"{name}.{kind}.bias": norm.bias}


def norm_from(left: dict[str, Array], name: str) -> Norm:
    """Takes the norm `name` out of named arrays."""
    for kind, cls in _NORMS.items():
        if f"{name}.{kind}.gain" in left:
            eps = float(left.pop(f"{name}.{kind}.eps"))
            return cls(left.pop(f"{name}.{kind}.gain"), left.pop(f"{name}.{kind}.bias", None), eps)
    raise ModelFileError(f"a language-model file lacks the tensor '{name}.rms.gain' or '{name}.layer.gain'")


def positions_from(left: dict[str, Array]) -> Positions | None:
    """Takes the positions out of named arrays, where there are any."""
    if "positions.theta" in left:
        return Rotary(float(left.pop("positions.theta")))
    return LearnedPositions(left.pop("positions.table")) if "positions.table" in left else None


def layer_from(left: dict[str, Array], name: str) -> DecoderLayer:
    """Takes the layer `name` out of named arrays."""
    arrays: dict[str, Any] = {key: left.pop(f"{name}attention.{key}") for key in _MATRICES}
    arrays |= {key: left.pop(f"{name}attention.{key}", None) for key in _BIASES}
    arrays |= {key: int(left.pop(f"{name}attention.{key}")) for key in ("heads", "groups")}
    attention = Attention(**arrays)
    return DecoderLayer(
        norm_from(left, f"{name}attention_norm"),
        attention,
        norm_from(left, f"{name}network_norm"),
        network_from(left, name),
    )


def network_from(left: dict[str, Array], name: str) -> Network:
    """Takes the network of the layer `name` out of named arrays."""
    for kind, keys in _NETWORKS.items():
        for full in [
            full for full in left if full.startswith(f"{name}network.") and full.endswith(f".{keys[0]}")
        ]:
            start = full.removesuffix(keys[0])
            activation = activation_named(start.removeprefix(f"{name}network.").removesuffix("."))
            arrays: dict[str, Any] = {key: left.pop(start + key) for key in keys}
            return kind(**arrays, activation=activation)
    raise ModelFileError(f"a language-model file lacks the network of {name.removesuffix('.')}")
