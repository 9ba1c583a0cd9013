"""Model files that are none: refused, without running anything in them and without reading what they claim to
hold."""

from __future__ import annotations

import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax.errors import ModelFileError

HEAD = unsoftmax.random_single_head(4, 2, seed=0, biases=True)
METADATA = {"format": "unsoftmax", "version": "1", "family": "single-head"}


def crafted(
    path: Path,
    tensors: dict[str, tuple[str, list[int]]],
    *,
    sizes: dict[str, int] | None = None,
    family: str = "single-head",
) -> Path:
    """A file with a well-formed header and sparse content, however large it claims to be."""
    header: dict[str, Any] = {"__metadata__": METADATA | {"family": family}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        n_bytes = (sizes or {}).get(
            name, int(np.prod(shape)) * {"F64": 8, "F32": 4, "BF16": 2, "I64": 8}[dtype]
        )
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + n_bytes]}
        offset += n_bytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    return path


def refused(path: Path, match: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for load in (unsoftmax.load, unsoftmax.as_oracle):
        with pytest.raises(ModelFileError, match=match):
            load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"v": ("F64", [4]), "W": ("F64", [4, 5])}, r"'W' has shape \(4, 5\)"),
        ({"v": ("F64", [4]), "W": ("F64", [4, 200_000_000])}, "'W' has shape"),
        ({"v": ("F64", [4]), "W.left": ("F64", [4, 2]), "W.right": ("F64", [4, 3])}, "'W.right' has shape"),
        ({"v": ("F64", [4]), "W": ("F64", [4, 4]), "w0": ("F64", [500_000_000])}, "'w0' has shape"),
        ({"v": ("F64", [0]), "W": ("F64", [0, 0])}, "empty"),
        ({"v": ("F64", []), "W": ("F64", [0, 0])}, "v must be|empty"),
        ({"v": ("F32", [4]), "W": ("F32", [4, 4])}, "float32"),
        ({"v": ("BF16", [4]), "W": ("BF16", [4, 4])}, "bfloat16"),
        ({"v": ("F64", [4])}, "either W or both"),
        ({"v": ("F64", [4]), "W": ("F64", [4, 4]), "code": ("F64", [1])}, "no tensor 'code'"),
    ],
)
def test_wrong_shapes_and_types(
    tmp_path: Path, tensors: dict[str, tuple[str, list[int]]], match: str
) -> None:
    refused(crafted(tmp_path / "bad.safetensors", tensors), match)


@pytest.mark.parametrize(
    ("family", "tensors", "match"),
    [
        (
            "multi-head",
            {"heads.0.v": [4], "heads.0.W": [4, 4], "heads.1.v": [4], "heads.1.W": [4, 300_000_000], "c": []},
            "heads.1.W",
        ),
        ("multi-head", {"heads.0.v": [4], "heads.0.W": [4, 4], "c": [500_000_000, 3]}, "'c' has shape"),
        (
            "multi-head",
            {"heads.0.v": [4], "heads.0.W.left": [4, 2], "heads.0.W.right": [500_000_000, 2], "c": []},
            "W.right",
        ),
        ("relu-network", {"A": [3, 4], "u": [700_000_000], "c": []}, "'u' has shape"),
        (
            "transformer",
            {"W": [4, 4], "network.A": [3, 5], "network.u": [3], "network.c": [], "residual": []},
            "network.A",
        ),
        (
            "transformer",
            {"W": [4, 4], "network.A": [3, 4], "network.u": [3], "network.c": [], "residual": [900_000_000]},
            "residual",
        ),
    ],
)
def test_wrong_shapes_of_other_families(
    tmp_path: Path, family: str, tensors: dict[str, list[int]], match: str
) -> None:
    refused(
        crafted(
            tmp_path / "bad.safetensors",
            {name: ("F64", shape) for name, shape in tensors.items()},
            family=family,
        ),
        match,
    )


def test_sizes_that_do_not_fit_the_shapes(tmp_path: Path) -> None:
    refused(
        crafted(tmp_path / "bad.safetensors", {"v": ("F64", [4]), "W": ("F64", [4, 4])}, sizes={"W": 8}),
        "no readable safetensors",
    )


@pytest.mark.parametrize("claim", [10 * 2**30, 2**63, 2**64 - 1, 2 * 2**20])
def test_a_header_that_claims_gigabytes(tmp_path: Path, claim: int) -> None:
    path = tmp_path / "bad.safetensors"
    with path.open("wb") as file:
        file.write(claim.to_bytes(8, "little") + b"{")
        file.truncate(min(claim + 9, 12 * 2**30))  # sparse: no disk is used
    refused(path, "header claims")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = HEAD.save(tmp_path / "head.safetensors")
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            unsoftmax.load(path)


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("framed", [False, True])
def test_pickles_are_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framed: bool) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(Bomb())
    path = tmp_path / "bad.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content if framed else content * 9)
    refused(path, "no readable safetensors")
    path.replace(tmp_path / "bad.onnx")
    with pytest.raises(ModelFileError, match=r"ONNX|onnxruntime"):
        unsoftmax.as_oracle(tmp_path / "bad.onnx")
    assert not (tmp_path / "executed").exists()


def test_nan_inside_is_refused(tmp_path: Path) -> None:
    path = HEAD.save(tmp_path / "head.safetensors")
    content = bytearray(path.read_bytes())
    content[-8:] = np.array([np.nan]).tobytes()
    path.write_bytes(content)
    refused(path, "NaN")
