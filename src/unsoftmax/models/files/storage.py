"""Model files: .safetensors with a family in the metadata. Loading never executes anything in the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.files.whole_files import replace_file
from unsoftmax.models.language_model import LanguageModel
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.networks.network import Network
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.residual_stack import ResidualStack
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.tokens.token_heads import TokenHeads
from unsoftmax.models.transformer import Transformer

__all__ = ["load", "plain_model", "save"]

_FORMAT = "unsoftmax"
_VERSION = "1"
_LARGEST_HEADER = 1 << 20  # bytes; a model of a thousand tensors has a tenth of it
_LARGEST_FILE = 16 << 30  # bytes; a head of width 32,768 as a dense matrix has 8.6 GB
_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
_FAMILIES: dict[str, type[Model]] = {
    model.stored_as or model.family: model
    for model in (
        EncoderBlock,
        GatedNetwork,
        LanguageModel,
        MultiHead,
        Network,
        ReluNetwork,
        ResidualStack,
        SingleHead,
        TokenHeads,
        Transformer,
    )
}


def save(model: Model, path: str | Path) -> Path:
    """Writes the model, replacing the file only when it is complete."""
    from safetensors.numpy import save as serialise

    target = Path(path)
    metadata = {"format": _FORMAT, "version": _VERSION, "family": model.stored_as or model.family}
    content = serialise(
        {name: np.asarray(part, order="C") for name, part in model.tensors().items()}, metadata
    )
    return replace_file(target, _in_order(content))


def plain_model(model: Model) -> Model:
    """The model that its file would hold: a class of one's own may answer otherwise than its arrays say, or
    bring rulers of its own.

    >>> from unsoftmax.models import SingleHead
    >>> class Lenient(SingleHead):
    ...     exact_at = 1.0
    >>> plain_model(Lenient([[2.0]], [1.0])).exact_at < 1.0
    True
    """
    family = next((each for each in _FAMILIES.values() if isinstance(model, each)), None)
    if family is None:
        raise UsageError(
            f"a learner returned a {type(model).__name__}, and only models of this library can be judged; "
            "return a SingleHead, a MultiHead or another of its models"
        )
    return family.from_tensors(model.tensors())


def _in_order(content: bytes) -> bytes:
    """The same file with a sorted header, so that a model has one file; safetensors writes metadata in any
    order."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(
        dict(sorted(header.items())) | {"__metadata__": dict(sorted(header["__metadata__"].items()))},
        separators=(",", ":"),
    ).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


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
    _check_sizes(source)
    try:
        with safe_open(str(source), framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ModelFileError(
                    f"{source} is a safetensors file, but no model of this library (no format entry)"
                )
            if metadata.get("version") != _VERSION:
                raise ModelFileError(
                    f"{source} has format version {metadata.get('version')!r}; this library reads "
                    f"{_VERSION!r}"
                )
            family = _FAMILIES.get(metadata.get("family", ""))
            if family is None:
                raise ModelFileError(f"{source} holds the unknown family {metadata.get('family')!r}")
            names = list(file.keys())  # an open file is no dict, and does not list them by itself
            parts = {name: file.get_slice(name) for name in names}
            if strange := [name for name, part in parts.items() if part.get_dtype() != "F64"]:
                raise ModelFileError(
                    f"{source}: tensor {strange[0]!r} is "
                    f"{_TYPES.get(kind := parts[strange[0]].get_dtype(), kind)}, not float64"
                )
            family.check_shapes({name: tuple(part.get_shape()) for name, part in parts.items()})
            tensors = {name: np.asarray(file.get_tensor(name)) for name in names}
    except UsageError as error:
        raise (
            error
            if isinstance(error, ModelFileError) and str(source) in str(error)
            else ModelFileError(f"{source}: {error}")
        ) from error
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{source} is not a readable safetensors file: {error}") from error
    try:
        return family.from_tensors(tensors)
    except ModelFileError:
        raise
    except UsageError as error:
        raise ModelFileError(f"{source}: {error}") from error


def _check_sizes(source: Path) -> None:
    """Refuses what cannot be a model before anything of that size is read: the header names its own
    length."""
    size = source.stat().st_size
    with source.open("rb") as file:
        start = file.read(9)
    header = int.from_bytes(start[:8], "little")
    if len(start) < 9 or start[8:] != b"{":
        raise ModelFileError(f"{source} is not a readable safetensors file: it does not begin with a header")
    if header > _LARGEST_HEADER or 8 + header > size:
        raise ModelFileError(
            f"{source} is not a readable safetensors file: its header claims {header:,} bytes, the file has "
            f"{size:,}"
        )
    if size > _LARGEST_FILE:
        raise ModelFileError(
            f"{source} has {size:,} bytes; models of this library have at most {_LARGEST_FILE:,}"
        )
