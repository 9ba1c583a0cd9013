"""A decoder as named arrays: kinds of norms and activations are part of the names, sizes are arrays of shape
()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
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
    "check_names",
    "from_tensors",
    "network_from",
    "network_tensors",
    "norm_from",
    "norm_tensors",
    "to_tensors",
]

_NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
_BIASES = ("query_bias", "key_bias", "value_bias", "output_bias")
_MATRICES = ("query", "key", "value", "output")
_NETWORKS: dict[type[GatedNetwork] | type[FeedForward], tuple[str, ...]] = {
    GatedNetwork: ("gate", "up", "down"),
    FeedForward: ("inner", "inner_bias", "outer", "outer_bias"),
}


def check_names(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a file whose matrices disagree on the width, or whose layers do not count up from 0; the rest
    is checked when built."""
    width = shapes.get("unembedding", (0, 0))[-1:]
    for name, shape in shapes.items():
        if name.endswith(".gain") and shape != width:
            raise ModelFileError(
                f"tensor {name!r} has shape {shape}; to fit the unembedding it must be {width}"
            )
    numbers = {name.split(".")[1] for name in shapes if name.startswith("layers.")}
    if numbers != {str(number) for number in range(len(numbers))}:
        raise ModelFileError(
            f"a language-model file has layers {', '.join(sorted(numbers))}; they must count up from 0"
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


def from_tensors(tensors: Mapping[str, Array]) -> LanguageModel:
    """The model of named arrays; a `ModelFileError` when some are missing, strange or left over."""
    from unsoftmax.models.language_model.model import LanguageModel

    left = dict(tensors)
    try:
        depth = 1 + max((int(name.split(".")[1]) for name in left if name.startswith("layers.")), default=-1)
        layers = [_layer(left, f"layers.{number}.") for number in range(depth)]
        model = LanguageModel(
            layers,
            norm_from(left, "final_norm"),
            left.pop("unembedding"),
            _positions(left),
            left.pop("embedding", None),
        )
    except (KeyError, ValueError, IndexError) as error:
        raise ModelFileError(f"a language-model file lacks or garbles the tensor {error}") from error
    except ModelFileError:
        raise
    except UsageError as error:
        raise ModelFileError(str(error)) from error
    if left:
        raise ModelFileError(f"a language-model file has no tensor {min(left)!r}")
    return model


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


def _positions(left: dict[str, Array]) -> Positions | None:
    if "positions.theta" in left:
        return Rotary(float(left.pop("positions.theta")))
    return LearnedPositions(left.pop("positions.table")) if "positions.table" in left else None


def _layer(left: dict[str, Array], name: str) -> DecoderLayer:
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
