"""Embeddings that the user knows: an array, a .npy file, or the state of a model of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arrays import Array, read_npy, real_numbers
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.files.tensor_files import read_tensors
from unsoftmax.models.files.whole_files import read_json_object

__all__ = ["checked_embeddings", "read_embeddings"]

_LARGEST_FILE = 16 << 30  # bytes: embeddings of a million tokens, 4096 wide, in float32
_LONGEST_NAME = 255  # of a file, on every usual system
# how transformers names the table of its tokens: BERT and its kin, GPT-2, Llama and its kin, T5
_TABLES = (
    "word_embeddings.weight",
    "wte.weight",
    "embed_tokens.weight",
    "tok_embeddings.weight",
    "shared.weight",
)
_BERT = "embeddings.word_embeddings.weight"
_NORM_EPS = 1e-12  # BERT's own; variances of embeddings are above 1e-4
_WAYS = "pass an array (V, d), a .npy file, a .safetensors file, or a folder or model of transformers"


def checked_embeddings(embeddings: object, vocabulary: int) -> Array:
    """Embeddings as float64 (V, d), one row for each of `vocabulary` tokens; else a `UsageError`."""
    table = read_embeddings(embeddings)
    if len(table) != vocabulary:
        raise UsageError(
            f"{len(table)} embeddings, but {vocabulary} tokens; pass one row a token, or the true vocabulary"
        )
    return table


def read_embeddings(embeddings: object) -> Array:
    """Embeddings as float64 (V, d); anything else is a `UsageError`.

    Of a BERT, rows are what its first layer gets at the first place: the norm of word, place and type.

    >>> read_embeddings({"model.embed_tokens.weight": np.eye(3)}).shape
    (3, 3)
    """
    if isinstance(embeddings, str | Path):
        embeddings = _read(Path(embeddings))
    elif callable(state := getattr(embeddings, "state_dict", None)):
        embeddings = state()
    if isinstance(embeddings, Mapping):
        embeddings = _rows_of_state(embeddings)
    try:
        table = real_numbers(embeddings)
    except (TypeError, ValueError) as error:
        raise UsageError(f"embeddings must be numbers of shape (V, d): {error}") from error
    if table.ndim != 2 or table.size == 0:
        raise UsageError(f"embeddings must have the shape (V, d), one row a token, not {table.shape}")
    if not np.isfinite(table).all():
        raise UsageError("embeddings hold NaN or infinity")
    return table


def _read(path: Path) -> object:
    """The array of a .npy file, or the state that a .safetensors file or a folder holds."""
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
        raise UsageError(f"cannot read embeddings from {path}; {_WAYS}")
    if path.suffix == ".safetensors":
        return _embedding_tensors(path)
    try:
        return read_npy(path)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot read embeddings from {path}: {error}; {_WAYS}") from error


def _read_folder(folder: Path) -> dict[str, Array]:
    """One file, or several with an index of which tensor is where."""
    if (folder / "model.safetensors").is_file():
        return _embedding_tensors(folder / "model.safetensors")
    index = folder / "model.safetensors.index.json"
    try:
        places = read_json_object(index)["weight_map"]
        names = {str(place) for name, place in places.items() if _is_embedding(name)}
    except (ModelFileError, KeyError, AttributeError) as error:
        text = f"there is neither model.safetensors nor its index in {folder}; {_WAYS}"
        raise UsageError(text) from error
    if any(Path(name).name != name or len(name) > _LONGEST_NAME for name in names):
        raise UsageError(f"the index in {folder} names files elsewhere; {_WAYS}")
    found: dict[str, Array] = {}
    for name in sorted(names):
        found |= _embedding_tensors(folder / name)
    return found


def _embedding_tensors(path: Path) -> dict[str, Array]:
    try:
        return read_tensors(path, _is_embedding)
    except ModelFileError as error:
        raise UsageError(str(error)) from error


def _is_embedding(name: str) -> bool:
    return "embeddings." in name or name.endswith(_TABLES)


def _rows_of_state(state: Mapping[Any, Any]) -> Array:
    """Rows of tokens as the first layer gets them."""
    tables = [str(name) for name in state if str(name).endswith(_TABLES)]
    if not tables:
        raise UsageError(
            f"the state holds no table of tokens (a name that ends in {', '.join(_TABLES)}); {_WAYS}"
        )
    first = min(tables, key=len)
    rows = _array(state[first])
    if not first.endswith(_BERT):
        return rows
    before = first[: -len("word_embeddings.weight")]
    for part in ("position_embeddings.weight", "token_type_embeddings.weight"):
        if before + part in state:
            rows = rows + _array(state[before + part])[0]
    if before + "LayerNorm.weight" not in state:
        return rows
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows = rows / np.sqrt(rows.var(axis=1, keepdims=True) + _NORM_EPS)
    return np.asarray(
        rows * _array(state[before + "LayerNorm.weight"]) + _array(state[before + "LayerNorm.bias"])
    )


def _array(tensor: Any) -> Array:
    """A torch tensor of any type, or anything that numpy reads."""
    if callable(getattr(tensor, "detach", None)):
        tensor = tensor.detach().cpu().double().numpy()
    return np.asarray(tensor, dtype=np.float64)
