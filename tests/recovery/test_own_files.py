"""Arrays of files that lie about themselves: one sentence, and no memory for what is not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import UsageError

pytestmark = pytest.mark.usefixtures("limited_in_time")


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
    for name, why in (("rows.npy", "does not begin"), ("pipe.npy", "not a regular file")):
        with pytest.raises(UsageError, match=why) as raised:
            unsoftmax.recover(unsoftmax.random_single_head(4, seed=0), sequences=tmp_path / name)
        assert "pickle" not in str(raised.value)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((9, 4), dtype=complex),
        np.zeros((9, 4), dtype="M8[s]"),
        np.zeros((9, 4), dtype="m8[s]"),
        np.full((9, 4), "1"),
        np.zeros((9, 4), dtype=[("a", float)]),
        np.full((9, 4), np.nan),
    ],
    ids=lambda rows: str(rows.dtype),
)
@pytest.mark.parametrize("use", ["sequences", "embeddings", "readout"])
def test_what_is_no_real_number_is_refused(tmp_path: Path, rows: np.ndarray[Any, Any], use: str) -> None:
    np.save(tmp_path / "rows.npy", rows)
    target: Any = unsoftmax.random_single_head(4, seed=0) if use == "sequences" else lambda X: X
    options: dict[str, Any] = {"vocabulary": 9} if use == "embeddings" else {"width": 4}
    options[use] = tmp_path / "rows.npy"
    with pytest.raises(UsageError, match=r"numbers|NaN"):
        unsoftmax.recover(target, **options)


def test_rows_whose_norm_is_no_number_are_refused() -> None:
    with pytest.raises(UsageError, match="beyond float64"):
        unsoftmax.recover(unsoftmax.random_single_head(4, seed=0), sequences=np.full((9, 4), 1e308))
