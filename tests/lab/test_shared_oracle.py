"""One target, many workers: the same bits, billed once, replayable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from unsoftmax.lab.shared_oracle import SharedOracle
from unsoftmax.lab.workers import LocalCrew, crew_of
from unsoftmax.ledger import read_statement

TARGET = "demo:single-head?d=24&r=3&seed=1"


def bits(result: unsoftmax.Result) -> tuple[bytes, bytes, int]:
    model = result.unwrap()
    assert isinstance(model, unsoftmax.SingleHead)
    return model.W.tobytes(), model.v.tobytes(), result.queries.total


def test_the_bits_do_not_depend_on_who_answers(tmp_path: Path) -> None:
    here = bits(unsoftmax.recover(SharedOracle(TARGET, None, share=7), seed=3))
    with crew_of(size=2) as crew:
        assert bits(unsoftmax.recover(SharedOracle(TARGET, crew, share=7), seed=3)) == here
    with crew_of("local", 2) as crew:
        oracle = SharedOracle(TARGET, crew, share=7)
        assert bits(unsoftmax.recover(oracle, seed=3, ledger=tmp_path / "books")) == here
        assert oracle.retries == 0


def test_a_ledger_of_many_workers_is_replayed_by_one(tmp_path: Path) -> None:
    with crew_of(size=2) as crew:
        first = unsoftmax.recover(SharedOracle(TARGET, crew, share=7), seed=3, ledger=tmp_path / "books")
    asked: list[int] = []

    class Watched(SharedOracle):
        def __call__(self, batch: np.ndarray, /) -> np.ndarray:
            asked.append(len(batch))
            return super().__call__(batch)

    again = unsoftmax.recover(Watched(TARGET, None, share=7), seed=3, ledger=tmp_path / "books")
    assert bits(again) == bits(first)
    assert sum(asked) == 0


def test_a_worker_that_dies_is_replaced_and_its_share_billed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORTAL", str(tmp_path / "mark"))
    (tmp_path / "mark").touch()
    whole = unsoftmax.recover(SharedOracle("tests.lab.hostile:mortal", None), width=5)
    (tmp_path / "mark").unlink()
    crew = LocalCrew(2)
    try:
        result = unsoftmax.recover(SharedOracle("tests.lab.hostile:mortal", crew), width=5)
    finally:
        crew.close()
    assert (tmp_path / "mark").exists()
    assert bits(result) == bits(whole)
    assert result.queries.retries >= 1


def test_workers_that_always_die_are_an_oracle_fault() -> None:
    with crew_of(size=1) as crew, pytest.raises(unsoftmax.OracleFault, match="died 3 times"):
        SharedOracle("tests.lab.hostile:always_dying", crew)(np.zeros((1, 1, 3)))


def test_wrong_use_is_refused() -> None:
    with pytest.raises(unsoftmax.UsageError, match="by its name"):
        SharedOracle(lambda X: X, None)  # type: ignore[arg-type]
    with pytest.raises(unsoftmax.UsageError, match="share must be"):
        SharedOracle(TARGET, None, share=0)
    with pytest.raises(unsoftmax.UsageError, match="at least one worker"), crew_of(size=0):
        pass


def test_the_command_asks_through_dask_and_its_ledger_is_replayed_without(tmp_path: Path) -> None:
    def run(dask: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "unsoftmax",
            "recover",
            "demo:single-head?d=6",
            "--dask",
            dask,
            "--json",
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    first = run("local", "--ledger", str(tmp_path / "books"))
    assert (first.returncode, first.stderr, json.loads(first.stdout)["status"]) == (0, "", "EXACT")
    paid = read_statement(tmp_path / "books").queries
    assert run("here", "--ledger", str(tmp_path / "books")).stdout == first.stdout
    assert read_statement(tmp_path / "books").queries == paid == json.loads(first.stdout)["queries"]["total"]
