"""audit, defend and compare as users run them; in this process, where a process of its own would show nothing
more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import unsoftmax
from tests.cli.test_cli import run
from unsoftmax.cli.app import app


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def invoke_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = invoke(*arguments, "--json")
    return done.exit_code, json.loads(done.stdout)


def test_audit_writes_a_report_and_a_second_run_pays_nothing(tmp_path: Path) -> None:
    arguments = (
        "audit",
        "demo:single-head?d=6&r=2",
        "--price-per-1k",
        "3",
        "--out",
        str(tmp_path / "new"),
        "--defences",
        "none",
    )
    status, facts = invoke_json(*arguments)
    assert (status, facts["status"], facts["rank"]) == (0, "EXACT", [2])
    assert facts["price"]["total"] == pytest.approx(3 * facts["queries"]["total"] / 1000)
    assert set(facts["artifacts"]) == {"report", "json", "sarif", "bom", "model", "ledger"}
    assert all(Path(path).is_file() for path in facts["artifacts"].values())
    assert facts["reproduce"]["command"].startswith("unsoftmax audit 'demo:single-head?d=6&r=2'")
    again_status, again = invoke_json(*arguments)
    assert again_status == 0
    assert again["queries"] == facts["queries"]
    assert again["reproduce"]["ledger_digest"] == facts["reproduce"]["ledger_digest"]
    assert again["plan"]["seconds_per_query"] is None


def test_audit_for_people(tmp_path: Path) -> None:
    done = run("audit", "demo:single-head?d=3", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("Everything leaks")
    assert "defences" in done.stdout
    assert "here/report.html" in done.stdout


def test_audit_asks_before_it_spends(tmp_path: Path) -> None:
    out = str(tmp_path)
    done = invoke("audit", "demo:single-head?d=8", "--confirm-above", "200", "--out", out)
    assert done.exit_code == 2
    assert "no terminal to ask at" in done.stderr
    assert "--yes" in done.stderr
    done = invoke(
        "audit", "demo:single-head?d=8", "--confirm-above", "200", "--yes", "--out", out, "--defences", "none"
    )
    assert done.exit_code == 0
    done = invoke("audit", "demo:single-head?d=64", "--confirm-above", "10", "--out", str(tmp_path / "other"))
    assert done.exit_code == 2
    assert "no audit of this width" in done.stderr
    assert invoke("audit", "demo:single-head?d=4", "--defences", "some").exit_code == 2


def test_audit_of_what_is_no_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curved_box.py").write_text(
        "import numpy as np\ndef f(X):\n    return np.tanh(X[:, -1, 0])\n"
    )
    status, facts = invoke_json("audit", "curved_box:f", "--width", "3")
    assert (status, facts["heads"]) == (1, None)
    assert facts["verdict"].startswith("Nothing was recovered")
    (report,) = (tmp_path / "out" / "audit").glob("curved-box-f-*/report.html")
    assert facts["artifacts"]["report"] == str(report.relative_to(tmp_path))


def test_defend_prints_a_table_and_advice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (
        "defend",
        "demo:single-head?d=4",
        "--defence",
        "decimals=2",
        "--defence",
        "decimals=2+input-bound=6",
        "--workers",
        "1",
    )
    done = invoke(*arguments, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert "rounded to 2 decimals + rows of norm ≤ 6" in done.stdout
    assert json.loads((out / "defences.json").read_text())["rows"]
    assert (out / "defences.svg").read_text().startswith("<svg")
    status, facts = invoke_json(*arguments)
    assert status == 0
    assert [row["label"] for row in facts["rows"]] == [
        "rounded to 2 decimals",
        "rounded to 2 decimals + rows of norm ≤ 6",
    ]
    assert facts["advice"]


def test_defend_recovers_first_what_only_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hidden_box.py").write_text(
        "import unsoftmax\nf = lambda X: unsoftmax.random_single_head(4, seed=1)(X)\n"
    )
    status, facts = invoke_json(
        "defend", "hidden_box:f", "--width", "4", "--defence", "decimals=2", "--workers", "1"
    )
    assert (status, facts["stand_in"]) == (0, True)


def test_compare_says_same_or_shows_the_difference(tmp_path: Path) -> None:
    layer = unsoftmax.random_multi_head(6, 3, seed=1)
    one = layer.save(tmp_path / "one.safetensors")
    two = unsoftmax.MultiHead(layer.heads[::-1], layer.c).save(tmp_path / "two.safetensors")
    done = invoke("compare", str(one), str(two))
    assert done.exit_code == 0
    assert done.stdout.startswith("Same function")
    status, facts = invoke_json(
        "compare", str(one), "demo:multi-head?d=6&heads=3&seed=2", "--out", str(tmp_path)
    )
    assert (status, facts["same"]) == (1, False)
    sequence = np.load(facts["artifacts"]["separating"])
    other = unsoftmax.random_multi_head(6, 3, seed=2)
    assert [float(layer(sequence[None])[0])] == facts["answers"][0]
    assert [float(other(sequence[None])[0])] == facts["answers"][1]
    done = invoke("compare", str(one), "demo:single-head?d=5")
    assert done.exit_code == 2
    assert "width" in done.stderr


def test_compare_recovers_first_what_only_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin_box.py").write_text(
        "import unsoftmax\nf = lambda X: unsoftmax.random_single_head(4, seed=1)(X)\n"
    )
    done = invoke("compare", "twin_box:f", "demo:single-head?d=4&seed=1", "--width", "4")
    assert done.exit_code == 0, done.output


def test_compare_knows_what_labels_and_rounding_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "import numpy as np, unsoftmax",
        "plain, biased = unsoftmax.random_single_head(4, seed=1), unsoftmax.random_single_head(4, seed=2, "
        "biases=True)",
        "labels = lambda X: (plain(X) > 0).astype(float)",
        "rounded = lambda X: np.round(biased(X), 2)",
    ]
    (tmp_path / "hiding_box.py").write_text("\n".join(lines))
    done = invoke("compare", "hiding_box:labels", "demo:single-head?d=4&seed=1", "--width", "4")
    assert done.exit_code == 0, done.output
    assert "v of length 1" in done.stderr
    assert (
        invoke("compare", "hiding_box:labels", "demo:single-head?d=4&seed=3", "--width", "4").exit_code == 1
    )
    assert (
        invoke(
            "compare", "hiding_box:rounded", "demo:single-head?d=4&seed=2&biases=1", "--width", "4"
        ).exit_code
        == 0
    )
