"""The command against servers: exit statuses, resuming, secrets, interrupts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax
from unsoftmax.cli.app import app
from unsoftmax.schemas import schema_of
from unsoftmax.serve import Faults, ModelServer

HEAD = unsoftmax.random_single_head(6, 3, seed=4)
TOKEN = "tok-51f8e2-private"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unsoftmax", *arguments]
    plain = {name: value for name, value in os.environ.items() if name != "UNSOFTMAX_HTTP_TOKEN"}
    return subprocess.run(
        command, capture_output=True, text=True, env=plain | environment, timeout=120, check=False
    )


def run_here(*arguments: str) -> Any:
    """The same without a process of its own, where none is needed."""
    return CliRunner().invoke(app, list(arguments))


@contextmanager
def served(*arguments: str, **environment: str) -> Iterator[str]:
    """`unsoftmax serve` in its own process; its address. What it prints keeps to its schema."""
    command = [sys.executable, "-m", "unsoftmax", "serve", *arguments, "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr
            text += line
        try:
            jsonschema.validate(said := json.loads(text), schema_of("serve"))
            yield said["url"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0


def test_a_served_file_is_recovered_and_the_ledger_tells(tmp_path: Path) -> None:
    path = str(HEAD.save(tmp_path / "head.safetensors"))
    ledger = str(tmp_path / "run.ledger")
    with served(path, "--fault", "unavailable=0.1", "--fault", "drop=0.05") as url:
        spent = run("recover", url, "--ledger", ledger, "--budget", "30", "--json")
        assert (spent.returncode, json.loads(spent.stdout)["status"]) == (1, "BUDGET_SPENT")
        done = run(
            "recover", url, "--ledger", ledger, "--concurrency", "2", "--out", str(tmp_path / "out"), "--json"
        )
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["status"], done.stderr) == (0, "EXACT", "")
    assert HEAD.distance(unsoftmax.load(facts["artifacts"]["model"])) < 1e-9  # type: ignore[arg-type]
    shown = run_here("ledger", "show", ledger, "--price-per-1k", "1000", "--json")
    statement = json.loads(shown.stdout)
    assert statement["queries"] == statement["cost"] == facts["queries"]["total"]
    assert statement["runs"] == 2
    for_people = run_here("ledger", "show", ledger).stdout
    assert re.search(rf"total +\d+ +{statement['queries']}", for_people)


def test_a_dead_server_is_exit_3_in_bounded_time_and_resumable(tmp_path: Path) -> None:
    ledger = str(tmp_path / "run.ledger")
    endpoint = tmp_path / "endpoint.json"
    with ModelServer(unsoftmax.as_oracle(HEAD), faults=Faults(die_after=15)) as server:
        endpoint.write_text(json.dumps({"url": server.url, "retries": 2, "backoff": 0.01, "patience": 5}))
        port = int(server.url.split(":")[2].split("/")[0])
        failed = run("recover", str(endpoint), "--ledger", ledger, "--json")
        answered = server.queries
    assert failed.returncode == 3
    assert "run again with the same" in json.loads(failed.stdout)["reason"]
    assert failed.stderr.count("\n") == 1
    with ModelServer(unsoftmax.as_oracle(HEAD), port=port) as server:
        done = run("recover", str(endpoint), "--ledger", ledger, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["queries"]["total"] == answered + server.queries


def test_without_the_token_exit_3_and_with_it_no_trace_of_it(tmp_path: Path) -> None:
    path = str(HEAD.save(tmp_path / "head.safetensors"))
    ledger = tmp_path / "run.ledger"
    with served(path, "--need-token", UNSOFTMAX_HTTP_TOKEN=TOKEN) as url:
        absent = run("recover", url, "--ledger", str(ledger))
        wrong = run("recover", url, "--ledger", str(ledger), UNSOFTMAX_HTTP_TOKEN=TOKEN + "-wrong")
        done = run(
            "recover",
            url,
            "--ledger",
            str(ledger),
            "--out",
            str(tmp_path / "out"),
            UNSOFTMAX_HTTP_TOKEN=TOKEN,
        )
    assert (absent.returncode, absent.stdout, absent.stderr.count("\n")) == (3, "", 1)
    assert "set UNSOFTMAX_HTTP_TOKEN" in absent.stderr
    assert wrong.returncode == 3
    assert done.returncode == 0
    shown = run_here("ledger", "show", str(ledger), "--json")
    assert not any(
        TOKEN in out for process in (absent, wrong, done, shown) for out in (process.stdout, process.stderr)
    )
    assert not any(TOKEN.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_an_interrupt_ends_at_once_and_says_how_to_go_on(tmp_path: Path) -> None:
    ledger = tmp_path / "run.ledger"
    with ModelServer(
        unsoftmax.as_oracle(HEAD), delay=0.0, faults=Faults(slow=0.3, slow_seconds=60.0)
    ) as server:
        command = [sys.executable, "-m", "unsoftmax", "recover", server.url, "--ledger", str(ledger)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while server.seen == server.queries or not server.seen:  # until a slow answer is under way
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            start = time.monotonic()
            _, error = process.communicate(timeout=60)
            took = time.monotonic() - start
    assert process.returncode == 130
    assert re.search(r"interrupted; \d+ paid answers are kept in .*: run the same command again", error)
    assert took < 30.0  # far below the 60 s that the server would take; usually a tenth of a second
    assert run_here("recover", f"{tmp_path}/absent.json").exit_code == 2


def test_killed_at_any_moment_the_same_bits_come_out(tmp_path: Path) -> None:
    ledger, out = tmp_path / "run.ledger", tmp_path / "out"
    arguments = ["--ledger", str(ledger), "--out", str(out)]
    with ModelServer(unsoftmax.as_oracle(HEAD)) as server:
        plain = run("recover", server.url, "--out", str(tmp_path / "plain"), "--json")
        whole = json.loads(plain.stdout)["queries"]["total"]
        before = server.queries
        for share in (0.2, 0.8):
            with subprocess.Popen(
                [sys.executable, "-m", "unsoftmax", "recover", server.url, *arguments]
            ) as process:
                while server.queries - before < share * whole:
                    time.sleep(0.001)
                process.kill()
        done = run("recover", server.url, *arguments, "--json")
        seen = server.queries - before
    assert json.loads(done.stdout)["queries"]["total"] == whole
    shown = json.loads(run_here("ledger", "show", str(ledger), "--json").stdout)
    assert (shown["queries"], shown["runs"]) == (whole, 3)
    assert seen <= whole + shown["lost"]
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "plain" / "model.safetensors").read_bytes()


def test_a_foreign_ledger_is_exit_2(tmp_path: Path) -> None:
    ledger = str(tmp_path / "run.ledger")
    run_here("recover", "demo:single-head?d=4", "--ledger", ledger, "--budget", "5")
    other = run_here("recover", "demo:single-head?d=4", "--ledger", ledger, "--seed", "1")
    assert other.exit_code == 2
    assert "belongs to another seed" in other.stderr
    assert other.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("recover", "demo:single-head?d=4", "--rate", "5"), "--rate is an option for web addresses"),
        (("ledger", "show", "absent.ledger"), "there is no ledger"),
        (("serve", "demo:single-head?d=4", "--fault", "rain=1"), "no fault 'rain'"),
        (("serve", "demo:single-head?d=4", "--datatype", "INT8"), "is not one of"),
        (("serve", "demo:single-head?d=4", "--need-token"), "is not set"),
    ],
)
def test_wrong_use_is_exit_2(arguments: tuple[str, ...], match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSOFTMAX_HTTP_TOKEN", raising=False)
    wrong = run_here(*arguments)
    assert wrong.exit_code == 2
    assert match in wrong.stderr


def test_defences_can_be_served() -> None:
    with served(
        "demo:single-head?d=3", "--round", "2", "--noise", "0.1", "--input-bound", "5", "--rate-limit", "1000"
    ) as url:
        oracle: Any = unsoftmax.as_oracle(url)
        answer = float(oracle(np.ones((1, 1, 3)))[0])
        assert round(answer, 2) == answer
        with pytest.raises(unsoftmax.OracleFault, match="input_bound=5"):
            oracle(100.0 * np.ones((1, 1, 3)))
    with served("demo:single-head?d=3", "--labels", "--datatype", "FP32", "--no-binary") as url:
        assert float(unsoftmax.as_oracle(url)(np.ones((1, 1, 3)))[0]) in (0.0, 1.0)
