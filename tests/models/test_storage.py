from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import unsoftmax
from unsoftmax import ModelFileError, SingleHead, UsageError

METADATA = {"format": "unsoftmax", "version": "1", "family": "single-head"}


def _file(folder: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> Path:
    path = folder / "model.safetensors"
    save_file(tensors, path, METADATA if metadata is None else metadata)
    return path


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"v": np.ones(2)}, None, "holds either W"),
        ({"W": np.eye(2), "v": np.ones(3)}, None, "v must be"),
        ({"W": np.eye(2), "v": np.ones(2), "extra": np.ones(1)}, None, "no tensor 'extra'"),
        ({"W": np.eye(2, dtype=np.float32), "v": np.ones(2)}, None, "float32"),
        ({"W": np.full((2, 2), np.nan), "v": np.ones(2)}, None, "NaN"),
        ({"W": np.eye(2), "v": np.ones(2)}, {"format": "pt"}, "no model of this library"),
        ({"W": np.eye(2), "v": np.ones(2)}, METADATA | {"version": "9"}, "version '9'"),
        ({"W": np.eye(2), "v": np.ones(2)}, METADATA | {"family": "rnn"}, "unknown family"),
    ],
)
def test_inconsistent_files_are_refused(
    tensors: dict[str, np.ndarray], metadata: dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=message):
        unsoftmax.load(_file(tmp_path, tensors, metadata))


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('executed')",))


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(ModelFileError, match="not a readable safetensors"):
        unsoftmax.load(path)


def test_truncated_foreign_and_missing_files(tmp_path: Path) -> None:
    whole = SingleHead(np.eye(4), np.ones(4)).save(tmp_path / "whole.safetensors").read_bytes()
    path = tmp_path / "model.safetensors"
    for content in (whole[:-8], whole[:20], b"", b"\xff" * 100, (10 * 2**30).to_bytes(8, "little") + b"{"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            unsoftmax.load(path)
    with pytest.raises(UsageError, match="no file"):
        unsoftmax.load(tmp_path / "absent.safetensors")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    head = SingleHead(np.eye(2), np.ones(2))
    with pytest.raises(UsageError, match="cannot write"):
        head.save(tmp_path / "no such folder" / "model.safetensors")
    path = head.save(tmp_path / "model.safetensors")
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
