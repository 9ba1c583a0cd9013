"""Arrays of files that lie about themselves: one sentence, and no memory for what is not there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from unsoftmax import UsageError


def lying(path: Path, rows: int) -> Path:
    """A file of one row whose header tells of many."""
    np.save(path, np.ones((1, 4)))
    content = path.read_bytes()
    told = f"({rows}, 4), ".encode()
    header = content[:10] + content[10:128].replace(b"(1, 4), ", told)
    path.write_bytes(header[: 128 - 1] + b"\n" + content[128:])
    return path


@pytest.mark.parametrize("rows", [2, 10**6, 10**12])
def test_a_header_that_tells_more_than_the_file_holds(tmp_path: Path, rows: int) -> None:
    with pytest.raises(UsageError, match="cannot read sequences"):
        unsoftmax.recover(
            unsoftmax.random_single_head(4, seed=0), sequences=lying(tmp_path / "rows.npy", rows)
        )


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="cannot read sequences"):
        unsoftmax.recover(unsoftmax.random_single_head(4, seed=0), sequences=tmp_path / "rows.npy")


def test_several_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", a=np.ones((2, 4)), b=np.ones((2, 4)))
    with pytest.raises(UsageError, match="several arrays"):
        unsoftmax.recover(unsoftmax.random_single_head(4, seed=0), sequences=tmp_path / "rows.npz")


def test_what_is_no_npy_file_is_not_advised_to_be_loaded_as_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "rows.npy").write_bytes(bytes(1000))
    os.mkfifo(tmp_path / "pipe.npy")
    for name, why in (("rows.npy", "does not begin"), ("pipe.npy", "no regular file")):
        with pytest.raises(UsageError, match=why) as raised:
            unsoftmax.recover(unsoftmax.random_single_head(4, seed=0), sequences=tmp_path / name)
        assert "pickle" not in str(raised.value)
