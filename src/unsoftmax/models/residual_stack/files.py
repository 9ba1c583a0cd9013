"""A stack as named arrays: kinds of norms and activations are part of the names, as in files of decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.language_model.files import network_from, network_tensors, norm_from, norm_tensors

if TYPE_CHECKING:
    from unsoftmax.models.residual_stack.model import ResidualStack, StackLayer

__all__ = ["check_names", "from_tensors", "to_tensors"]


def check_names(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a file whose norms disagree on the width, or whose layers do not count up from 0."""
    widths = {shape for name, shape in shapes.items() if name.endswith(".gain")}
    if len(widths) > 1:
        raise ModelFileError(f"norms of shapes {', '.join(map(str, sorted(widths)))} do not fit together")
    numbers = {name.split(".")[1] for name in shapes if name.startswith("layers.")}
    if numbers != {str(number) for number in range(len(numbers))}:
        raise ModelFileError(
            f"a residual-stack file has layers {', '.join(sorted(numbers))}; they must count up from 0"
        )


def to_tensors(stack: ResidualStack) -> dict[str, Array]:
    """All arrays of the stack by name."""
    out: dict[str, Array] = {"scale": np.array(stack.scale)}
    if stack.final_norm is not None:
        out |= norm_tensors("final_norm", stack.final_norm)
    for number, layer in enumerate(stack.layers):
        name = f"layers.{number}."
        out |= norm_tensors(f"{name}network_norm", layer.network_norm) | network_tensors(name, layer.network)
        if layer.path is not None and layer.path_norm is not None:
            out |= norm_tensors(f"{name}path_norm", layer.path_norm) | {f"{name}path": layer.path}
    return out


def from_tensors(tensors: Mapping[str, Array]) -> ResidualStack:
    """The stack of named arrays; a `ModelFileError` when some are missing, strange or left over."""
    from unsoftmax.models.residual_stack.model import ResidualStack

    left = dict(tensors)
    try:
        depth = 1 + max((int(name.split(".")[1]) for name in left if name.startswith("layers.")), default=-1)
        layers = [_layer(left, f"layers.{number}.") for number in range(depth)]
        final = norm_from(left, "final_norm") if any(n.startswith("final_norm.") for n in left) else None
        stack = ResidualStack(layers, final, float(left.pop("scale")))
    except (KeyError, ValueError, IndexError) as error:
        raise ModelFileError(f"a residual-stack file lacks or garbles the tensor {error}") from error
    except ModelFileError:
        raise
    except UsageError as error:
        raise ModelFileError(str(error)) from error
    if left:
        raise ModelFileError(f"a residual-stack file has no tensor {min(left)!r}")
    return stack


def _layer(left: dict[str, Array], name: str) -> StackLayer:
    from unsoftmax.models.residual_stack.model import StackLayer

    path = left.pop(f"{name}path", None)
    norm = None if path is None else norm_from(left, f"{name}path_norm")
    return StackLayer(norm_from(left, f"{name}network_norm"), network_from(left, name), norm, path)
