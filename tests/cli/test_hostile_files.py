"""Demos, sweeps, endpoint files and models that are none: wrong usage, in one sentence."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from tests.cli.test_hostile_targets import LIMIT, run_here
from unsoftmax import UsageError

pytestmark = pytest.mark.usefixtures("limited_in_time")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("demo:?seed=-1", "there is no demo ''"),
        ("demo:single-head?seed=-1", "seed=-1 must be at least 0"),
        ("demo:multi-head?seed=-1", "seed=-1 must be at least 0"),
        ("demo:transformer?seed=-1", "seed=-1 must be at least 0"),
        ("demo:single-head?d=0", "d=0 must be at least 1"),
        ("demo:single-head?d=\u00b2", "is not a number"),
        ("demo:single-head?d=" + "9" * 5000, "is not a number"),
        ("demo:single-head?d=10000000", "does not fit into memory"),
        ("demo:multi-head?d=4000&heads=1000", "does not fit into memory"),
        ("demo:multi-head?heads=0", "heads=0 must be at least 1"),
        ("demo:transformer?m=0", "m=0 must be at least 1"),
        ("demo:single-head?d=4&r=9", "0 <= r <= d"),
        ("demo:single-head?scale=nan", "must be a finite number"),
        ("demo:single-head?scale=1e999", "must be a finite number"),
        ("demo:single-head?d", "is not a number"),
        ("demo:single-head?speed=1", "no option 'speed'"),
    ],
)
def test_demos_that_cannot_be_made_are_wrong_usage(target: str, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        unsoftmax.as_oracle(target)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d = " + "[" * 100_000, "nested too deeply"),
        ("a" + ".a" * 50_000 + " = 1", "sweep"),
        ("[grid]\nd = [4]\n#" + "x" * (2 << 20), "bytes; at most 1,048,576"),
        ("[grid]\nd = [" + "9" * 5000 + "]", "not valid TOML"),
        ("[grid]\nd = [4]\nseed = {first = 0, count = 100000000000}", "split it"),
    ],
)
def test_deep_and_huge_sweeps_are_wrong_usage(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    start = time.monotonic()
    done = run_here(tmp_path, "sweep", "s.toml", "--out", "o")
    assert done.exit_code == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < LIMIT / 2


@pytest.mark.parametrize("place", ["/dev/zero", "."])
def test_a_sweep_that_is_no_file_is_wrong_usage(place: str, tmp_path: Path) -> None:
    done = run_here(tmp_path, "sweep", place, "--out", str(tmp_path))
    assert (done.exit_code, "Traceback" in done.stderr) == (2, False)
    assert "is not a file" in done.stderr


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"url": "http://a", "request": ' + "[" * 100_000, " " * (2 << 20)]
)
def test_deep_and_huge_endpoint_files_are_wrong_usage(tmp_path: Path, content: str) -> None:
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(UsageError, match=r"readable JSON|bytes; at most"):
        unsoftmax.as_oracle(str(tmp_path / "e.json"))


@pytest.mark.parametrize("index", ["\u00b2", "\u0663", "-1", "1e1", ""])
def test_odd_indices_of_heads_are_a_bad_file(tmp_path: Path, index: str) -> None:
    from safetensors.numpy import save_file

    metadata = {"format": "unsoftmax", "version": "1", "family": "multi-head"}
    tensors = {"c": np.zeros(()), f"heads.{index}.W": np.eye(2), f"heads.{index}.v": np.ones(2)}
    save_file(tensors, str(tmp_path / "m.safetensors"), metadata)
    with pytest.raises(unsoftmax.ModelFileError):
        unsoftmax.load(tmp_path / "m.safetensors")
    done = run_here(tmp_path, "recover", str(tmp_path / "m.safetensors"))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
