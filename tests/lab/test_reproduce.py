"""`reproduce`: every statement of the paper holds on its grid, and the same seed gives the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import unsoftmax
from unsoftmax.lab.experiments import EXPERIMENTS, Chart, Line
from unsoftmax.lab.page import draw
from unsoftmax.lab.reproduce import reproduce


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_every_statement_holds_on_its_small_grid(key: str, tmp_path: Path) -> None:
    done = reproduce(tmp_path, theorems=[key], fast=True, seed=0)
    assert done.checks
    assert [check for _, check in done.checks if not check.holds] == []
    page = done.page.read_text()
    assert EXPERIMENTS[key].title in page.replace("&#39;", "'")
    assert "http" not in page.replace("https://arxiv.org", "")  # one page, nothing fetched
    assert list(tmp_path.glob("*.csv"))


def test_the_same_seed_gives_the_same_bytes_here_or_in_processes(tmp_path: Path) -> None:
    for name, workers in (("one", None), ("two", 2)):
        reproduce(tmp_path / name, theorems=["sanity", "7.1"], fast=True, seed=3, workers=workers)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_charts_are_the_same_bytes(tmp_path: Path) -> None:
    chart = Chart(
        "c", "x", "y", (Line("a", (1.0, 2.0), (3.0, 4.0)), Line("b", (1.0, 2.0), (5.0, 6.0), bound=True))
    )
    assert draw(chart, tmp_path / "a.png").read_bytes() == draw(chart, tmp_path / "b.png").read_bytes()


def test_an_unknown_theorem_is_refused(tmp_path: Path) -> None:
    with pytest.raises(unsoftmax.UsageError, match=r"there is no experiment '9.9'; choose from 4.1"):
        reproduce(tmp_path, theorems=["9.9"])


def test_names_of_the_paper_in_any_case(tmp_path: Path) -> None:
    done = reproduce(tmp_path, theorems=["c.2", "C"], fast=True)
    assert {key for key, _ in done.checks} == {"C"}
    assert len(list(tmp_path.glob("*.csv"))) == 1


def test_control_c_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unsoftmax", "reproduce", "--out", str(tmp_path / "o")]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while driver.poll() is None and not (tmp_path / "o").exists():
        time.sleep(0.02)
    os.killpg(driver.pid, signal.SIGINT)
    _, said = driver.communicate()
    assert (driver.returncode, said.count("\n")) == (130, 1)
    assert "interrupted; nothing was written. --fast" in said


def test_the_command(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "unsoftmax",
        "reproduce",
        "--fast",
        "--theorem",
        "sanity",
        "--out",
        str(tmp_path),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["holds"] is True
    assert [check["theorem"] for check in facts["checks"]] == ["sanity"]
    assert (tmp_path / "index.html").exists()
