"""audit, defend and compare as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from tests.cli.test_cli import run, run_json


def test_audit_writes_a_report_and_tells_the_facts(tmp_path: Path) -> None:
    status, facts = run_json("audit", "demo:single-head?d=6&r=2", "--price-per-1k", "3", "--out", str(tmp_path / "new"), "--defences", "none")
    assert (status, facts["status"], facts["rank"]) == (0, "EXACT", [2])
    assert facts["price"]["total"] == pytest.approx(3 * facts["queries"]["total"] / 1000)
    assert set(facts["artifacts"]) == {"report", "json", "model", "ledger"}
    assert all(Path(path).is_file() for path in facts["artifacts"].values())
    assert facts["reproduce"]["ledger_digest"]
    again_status, again = run_json("audit", "demo:single-head?d=6&r=2", "--price-per-1k", "3", "--out", str(tmp_path / "new"), "--defences", "none")
    assert again_status == 0
    assert again["queries"] == facts["queries"]
    assert again["reproduce"]["ledger_digest"] == facts["reproduce"]["ledger_digest"]


def test_audit_for_people(tmp_path: Path) -> None:
    done = run("audit", "demo:single-head?d=4", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("Everything leaks")
    assert "defences" in done.stdout
    assert "here/report.html" in done.stdout


def test_audit_asks_before_it_spends(tmp_path: Path) -> None:
    out = str(tmp_path)
    done = run("audit", "demo:single-head?d=16", "--confirm-above", "300", "--out", out)
    assert done.returncode == 2
    assert "no terminal to ask at" in done.stderr
    assert "--yes" in done.stderr
    done = run("audit", "demo:single-head?d=16", "--confirm-above", "300", "--yes", "--out", out, "--defences", "none")
    assert done.returncode == 0
    done = run("audit", "demo:single-head?d=64", "--confirm-above", "10", "--out", str(tmp_path / "other"))
    assert done.returncode == 2
    assert "no audit of this width" in done.stderr
    assert run("audit", "demo:single-head?d=4", "--defences", "some").returncode == 2


def test_audit_of_what_is_no_attention(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("import numpy as np\ndef f(X):\n    return np.tanh(X[:, -1, 0])\n")
    status, facts = run_json("audit", "box:f", "--width", "3", cwd=tmp_path)
    assert (status, facts["status"]) == (1, "OUTSIDE_CLASS")
    assert facts["verdict"].startswith("Nothing was recovered")
    assert (tmp_path / "out" / "audit" / "report.html").is_file()


def test_defend_prints_a_table_and_advice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("defend", "demo:single-head?d=4", "--defence", "decimals=2", "--defence", "decimals=2+input-bound=6", "--workers", "1")
    done = run(*arguments, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "rounded to 2 decimals + rows of norm ≤ 6" in done.stdout
    assert json.loads((out / "defences.json").read_text())["rows"]
    assert (out / "defences.svg").read_text().startswith("<svg")
    status, facts = run_json(*arguments)
    assert status == 0
    assert [row["label"] for row in facts["rows"]] == ["rounded to 2 decimals", "rounded to 2 decimals + rows of norm ≤ 6"]
    assert facts["advice"]


def test_defend_recovers_first_what_only_answers(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("import unsoftmax\nf = lambda X: unsoftmax.random_single_head(4, seed=1)(X)\n")
    status, facts = run_json("defend", "box:f", "--width", "4", "--defence", "decimals=2", "--workers", "1", cwd=tmp_path)
    assert (status, facts["stand_in"]) == (0, True)


def test_compare_says_same_or_shows_the_difference(tmp_path: Path) -> None:
    layer = unsoftmax.random_multi_head(6, 3, seed=1)
    one = layer.save(tmp_path / "one.safetensors")
    two = unsoftmax.MultiHead(layer.heads[::-1], layer.c).save(tmp_path / "two.safetensors")
    assert run("compare", str(one), str(two)).returncode == 0
    status, facts = run_json("compare", str(one), "demo:multi-head?d=6&heads=3&seed=2", "--out", str(tmp_path))
    assert (status, facts["same"]) == (1, False)
    sequence = np.load(facts["artifacts"]["separating"])
    other = unsoftmax.random_multi_head(6, 3, seed=2)
    assert [float(layer(sequence[None])[0])] == facts["answers"][0]
    assert [float(other(sequence[None])[0])] == facts["answers"][1]
    done = run("compare", str(one), "demo:single-head?d=5")
    assert done.returncode == 2
    assert "width" in done.stderr
