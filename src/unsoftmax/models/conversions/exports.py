"""Models for where their users live: a torch module, an ONNX file, a numpy archive."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.conversions.export_parts import parts_of
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.files.whole_files import replace_file
from unsoftmax.models.tokens.token_heads import TokenHeads

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["save_npz", "save_onnx", "to_torch"]


def to_torch(model: Model, *, dtype: torch.dtype | str = "float64") -> nn.Module:
    """An nn.Module in `dtype` that maps (B, N, d) to the model's answers."""
    try:
        from unsoftmax.models.conversions.torch_formats import torch_format
        from unsoftmax.models.conversions.torch_parts import Composite
    except ImportError as error:
        raise UsageError("a torch module needs torch; pip install 'unsoftmax[torch]'") from error
    return Composite(parts_of(model)).to(torch_format(dtype))


def save_npz(model: Model, path: str | Path) -> Path:
    """The arrays of the model and its family, as numpy's own archive; nothing in it needs pickle."""
    target = _named(path, ".npz")
    content = BytesIO()
    arrays: dict[str, Any] = dict(model.tensors())
    np.savez(content, family=np.array(model.family), **arrays)
    return replace_file(target, content.getvalue())


def save_onnx(model: Model, path: str | Path, *, external_data: bool = False) -> Path:
    """A float64 ONNX model 'sequences' (batch, length, d), or 'ids' (batch, length), -> 'answers'.

    external_data: weights in a second file, path + '.data'.
    """
    try:
        import onnx

        from unsoftmax.models.conversions.onnx_blocks import block_onnx_model
        from unsoftmax.models.conversions.onnx_graph import onnx_model
        from unsoftmax.models.conversions.onnx_tokens import token_onnx_model
    except ImportError as error:
        raise UsageError("an .onnx file needs onnx; pip install 'unsoftmax[onnx]'") from error
    target = _named(path, ".onnx")
    match model:
        case TokenHeads():
            proto = token_onnx_model(model)
        case EncoderBlock():
            proto = block_onnx_model(model)
        case _:
            proto = onnx_model(model)
    if not external_data:
        return replace_file(target, proto.SerializeToString())
    try:
        (target.parent / f"{target.name}.data").unlink(missing_ok=True)  # onnx appends to what it finds
        # axes stay inside
        onnx.save_model(
            proto, str(target), save_as_external_data=True, location=f"{target.name}.data", size_threshold=64
        )
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another place") from error
    return target


def _named(path: str | Path, suffix: str) -> Path:
    target = Path(path)
    return target if target.suffix == suffix else target.with_name(target.name + suffix)
