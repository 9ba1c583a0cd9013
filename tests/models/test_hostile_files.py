"""Files of others that are not what they say: one sentence each, before anything of their size is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax.errors import UsageError
from unsoftmax.recovery.inputs.known_rows import read_embeddings

NAME = "model.embed_tokens.weight"


def file_of(header: object, data: bytes = b"0" * 16, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(**changed: Any) -> dict[str, Any]:
    return {NAME: {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changed}


FILES: dict[str, bytes] = {
    "nothing": b"",
    "a header of 2^63 bytes": file_of(b"{", length=2**63),
    "a header longer than the file": file_of(b"{}", length=1 << 20),
    "deep lists": file_of(b"[" * 200_000),
    "deep objects": file_of(b'{"a":' * 50_000),
    "a list": file_of(b"[]"),
    "no entry": file_of({NAME: None}),
    "offsets backwards": file_of(entry(data_offsets=[16, 0])),
    "offsets before the file": file_of(entry(data_offsets=[-100, 16])),
    "offsets of 10^18": file_of(entry(data_offsets=[0, 10**18])),
    "offsets of 10^40": file_of(entry(data_offsets=[0, 10**40])),
    "offsets that are fractions": file_of(entry(data_offsets=[0.5, 16.5])),
    "a shape of 10^24": file_of(entry(shape=[10**12, 10**12])),
    "a shape of words": file_of(entry(shape="ab")),
    "a datatype that is a list": file_of(entry(dtype=["F32"])),
    "tensors that share their bytes": file_of(
        {
            f"{i}.{NAME}": {"dtype": "F32", "shape": [1 << 18], "data_offsets": [0, 1 << 20]}
            for i in range(5000)
        },
        bytes(1 << 20),
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_safetensors_that_are_none(tmp_path: Path, what: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(FILES[what])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for read in (read_embeddings, unsoftmax.load):
        with pytest.raises(UsageError):
            read(path)
    with pytest.raises(UsageError):
        unsoftmax.LanguageModel.from_transformers(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        "[" * 200_000,
        "[]",
        "null",
        "3",
        '{"model_type": ["llama"]}',
        '{"model_type": "llama", "num_attention_heads": 0, "hidden_size": 0, "num_hidden_layers": 0}',
        '{"model_type": "llama", "num_attention_heads": "x", "hidden_size": 2, "num_hidden_layers": 1}',
        '{"model_type": "gpt2", "n_head": [], "n_embd": {}, "n_layer": 1}',
    ],
)
def test_settings_that_are_none(tmp_path: Path, config: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(file_of(entry(), np.ones(4, "<f4").tobytes()))
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UsageError):
        unsoftmax.LanguageModel.from_transformers(tmp_path)


@pytest.mark.parametrize("place", ["../x", "..", "a" * 100_000, "a\x00b", None])
def test_an_index_that_names_odd_files(tmp_path: Path, place: str | None) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {NAME: place}}))
    with pytest.raises(UsageError) as told:
        read_embeddings(tmp_path)
    assert len(str(told.value)) < 1000


def test_a_deep_index(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("[" * 200_000)
    with pytest.raises(UsageError, match="index"):
        read_embeddings(tmp_path)
