"""The command as users run it: in a process of its own, or in this one, where that shows the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax
from unsoftmax.cli.app import app

BOX = """
import numpy as np
def f(X):
    return np.tanh(X[:, -1, 0])
def broken(X):
    raise OSError('line down')
"""


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unsoftmax", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def run_here(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        if cwd is not None:
            patch.chdir(cwd)
        done = CliRunner().invoke(app, list(arguments))
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def run_json(*arguments: str, cwd: Path | None = None) -> tuple[int, dict[str, Any]]:
    done = run(*arguments, "--json", cwd=cwd)
    return done.returncode, json.loads(done.stdout)


def run_json_here(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_here(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_recover_writes_the_model_and_tells_the_facts(tmp_path: Path) -> None:
    status, facts = run_json(
        "recover", "demo:single-head?d=12&r=3&seed=4", "--seed", "2", "--out", str(tmp_path / "new")
    )
    assert status == 0
    assert facts["status"] == "EXACT"
    assert (facts["family"], facts["width"], facts["heads"], facts["rank"]) == ("single-head", 12, 1, [3])
    assert facts["parameters"] == 12 + 3 * (24 - 3)
    assert facts["queries"]["total"] == sum(facts["queries"]["by_phase"].values())
    assert facts["certificate"]["passed"] is True
    assert facts["error_bound"] < 1e-9
    model = unsoftmax.load(facts["artifacts"]["model"])
    assert unsoftmax.random_single_head(12, 3, seed=4).distance(model) < 1e-9  # type: ignore[arg-type]


def test_people_get_text_and_pipes_no_progress() -> None:
    done = run("recover", "demo:single-head?d=5")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("EXACT: ")
    assert "queries" in done.stdout


def test_a_saved_model_is_a_target_again(tmp_path: Path) -> None:
    path = unsoftmax.random_single_head(6, seed=1).save(tmp_path / "hidden.safetensors")
    status, facts = run_json("recover", str(path))
    assert (status, facts["status"]) == (0, "EXACT")


def test_a_callable_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(BOX)
    status, facts = run_json("recover", "box:f", "--width", "3", cwd=tmp_path)
    assert (status, facts["status"], facts["artifacts"]) == (1, "OUTSIDE_CLASS", {})
    assert "failed the test" in facts["reason"]
    done = run("recover", "box:broken", "--width", "3", cwd=tmp_path)
    assert done.returncode == 3
    assert "line down" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("recover", "box:f", cwd=tmp_path)
    assert done.returncode == 2
    assert "width" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("recover", "nowhere"), 2, "names no target"),
        (("recover", "demo:single-head?d=4", "--width", "5"), 2, "pass --width 4"),
        (("recover", "demo:single-head?d=4", "--budget", "-1"), 2, "budget"),
        (("recover", "demo:single-head?d=4", "--family", "rnn"), 2, "is not one of"),
        (("recover", "demo:single-head?d=4", "--out", "/dev/null/x"), 2, "cannot write"),
        (("recover",), 2, "TARGET"),
        (("frobnicate",), 2, "frobnicate"),
        (("demo", "nonsense"), 2, "is not one of"),
    ],
)
def test_wrong_usage_ends_with_two_and_a_sentence(
    arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = run_here(*arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_errors_are_json_too() -> None:
    status, facts = run_json("recover", "nowhere")
    assert status == 2
    assert facts["error"] == "UsageError"
    assert "names no target" in facts["reason"]


def test_budget_spent_is_an_outcome() -> None:
    status, facts = run_json_here("recover", "demo:single-head?d=8", "--budget", "50")
    assert (status, facts["status"]) == (1, "BUDGET_SPENT")
    assert facts["queries"]["total"] <= 50


def test_plan_asks_nothing_and_bounds_the_bill() -> None:
    status, facts = run_json_here("plan", "demo:single-head?d=64&r=8", "--budget", "2000")
    assert status == 0
    assert facts["paper"] == 64 + 64 * 64
    assert facts["rank_within_budget"] == 8
    costs = {row["rank"]: row["queries"] for row in facts["by_rank"]}
    _, recovered = run_json_here("recover", "demo:single-head?d=64&r=8")
    learning = recovered["queries"]["total"] - recovered["queries"]["by_phase"]["verification"]
    assert abs(costs[8] - learning) <= 0.05 * learning
    assert learning <= next(row["at_most"] for row in facts["by_size"] if row["ranks"] == [8])
    text = run_here("plan", "demo:single-head?d=64").stdout
    assert "4,160" in text


def test_plan_takes_the_size_that_is_known() -> None:
    told = ("--family", "multi-head", "--heads", "4", "--rank", "3")
    _, facts = run_json_here("plan", "demo:multi-head?d=16&heads=4&r=3", *told)
    (row,) = facts["by_size"]
    assert row["ranks"] == [3, 3, 3, 3]
    _, recovered = run_json_here("recover", "demo:multi-head?d=16&heads=4&r=3")
    assert abs(row["total"] - recovered["queries"]["total"]) <= 0.2 * recovered["queries"]["total"]


def test_demo_tells_its_story(tmp_path: Path) -> None:
    done = run_here("demo", "--width", "10", "--rank", "2", "--out", "story", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "EXACT" in done.stdout
    assert "Theorem 4.1: 110" in done.stdout
    picture = tmp_path / "story" / "recovery.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert unsoftmax.load(tmp_path / "story" / "model.safetensors").width == 10


def test_demo_of_several_heads(tmp_path: Path) -> None:
    done = run_here("demo", "multi-head", "--width", "12", "--heads", "3", "--out", "story", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 heads of width 12" in done.stdout
    assert (tmp_path / "story" / "staircase.png").read_bytes().startswith(b"\x89PNG")
    assert len(unsoftmax.load(tmp_path / "story" / "model.safetensors").ranks) == 3


HELP = """
import sys
sys.argv = ['unsoftmax', '--help']
from unsoftmax.__main__ import main
try:
    main()
except SystemExit:
    pass
print([name for name in ('matplotlib', 'scipy', 'torch', 'numpy') if name in sys.modules], file=sys.stderr)
"""


def test_help_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "recover" in done.stdout


def test_version_and_readme_agree() -> None:
    assert run("--version").stdout.strip() == f"unsoftmax {unsoftmax.__version__}"
    assert np.isfinite(float(unsoftmax.__version__.split(".")[0]))


@pytest.mark.parametrize(("columns", "widest"), [(60, 60), (200, 110)])
def test_long_lines_fold_at_the_terminals_width(
    columns: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unsoftmax.cli.output import in_paragraph

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = in_paragraph("learned positions", "some words " * 40).split("\n")
    assert widest - 10 < max(map(len, lines)) <= widest
    assert lines[0].startswith("learned positions some")
    assert all(line[:12].isspace() and not line[12].isspace() for line in lines[1:])
