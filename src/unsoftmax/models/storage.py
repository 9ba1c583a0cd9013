"""Model files: .safetensors with a family in the metadata. Loading never executes anything in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.transformer import Transformer

__all__ = ["load", "save"]

_FORMAT = "unsoftmax"
_VERSION = "1"
_FAMILIES: dict[str, type[Model]] = {model.family: model for model in (MultiHead, ReluNetwork, SingleHead, Transformer)}


def save(model: Model, path: str | Path) -> Path:
    """Writes the model, replacing the file only when it is complete."""
    from safetensors.numpy import save as serialise

    target = Path(path)
    metadata = {"format": _FORMAT, "version": _VERSION, "family": model.family}
    content = serialise({name: np.asarray(part, order="C") for name, part in model.tensors().items()}, metadata)
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another place") from error
    return target


def load(path: str | Path) -> Model:
    """The model of a file written by `save`.

    >>> import tempfile, unsoftmax
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = unsoftmax.SingleHead([[2.0]], [1.0]).save(folder + "/head.safetensors")
    ...     unsoftmax.load(path).W
    array([[2.]])
    """
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    if not source.is_file():
        raise UsageError(f"there is no file {source}")
    try:
        with safe_open(str(source), framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ModelFileError(f"{source} is a safetensors file, but no model of this library (no format entry)")
            if metadata.get("version") != _VERSION:
                raise ModelFileError(f"{source} has format version {metadata.get('version')!r}; this library reads {_VERSION!r}")
            family = _FAMILIES.get(metadata.get("family", ""))
            if family is None:
                raise ModelFileError(f"{source} holds the unknown family {metadata.get('family')!r}")
            tensors = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{source} is no readable safetensors file: {error}") from error
    if strange := [name for name, part in tensors.items() if part.dtype != np.float64]:
        raise ModelFileError(f"{source}: tensor {strange[0]!r} is {tensors[strange[0]].dtype}, not float64")
    try:
        return family.from_tensors(tensors)
    except ModelFileError:
        raise
    except UsageError as error:
        raise ModelFileError(f"{source}: {error}") from error
