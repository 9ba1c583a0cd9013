"""Everything that `--json` prints keeps to the schema that `unsoftmax schema` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from unsoftmax.cli.app import app
from unsoftmax.cli.commands.schema import _Command
from unsoftmax.schemas import COMMANDS, schema_of

HEAD = "demo:single-head?d=3&r=1"
RUNS = {
    "recover": ["recover", HEAD],
    "check": ["check", HEAD],
    "plan": ["plan", HEAD],
    "audit": ["audit", HEAD, "--price-per-1k", "2", "--defences", "none", "--fail-on", "leak", "--out", "a"],
    "defend": ["defend", HEAD, "--defence", "decimals=2", "--defence", "budget=5"],
    "compare": ["compare", HEAD, "demo:single-head?d=3&r=1&seed=1"],
    "demo": ["demo", "--width", "6", "--rank", "1", "--out", "demo"],
    "reproduce": ["reproduce", "--fast", "--theorem", "4.1", "--out", "paper"],
    "sweep": ["sweep", "small.toml", "--out", "sweep"],
    "ledger-show": ["ledger", "show", "run.ledger"],
    "error": ["recover", "no-such-file.safetensors"],
}
FAILURES = {  # other outcomes of the same commands
    "recover": ["recover", "demo:multi-head?d=4&heads=2", "--budget", "150"],
    "audit": ["audit", "demo:single-head?d=4", "--budget", "150", "--out", "b"],
    "check": ["check", "json:dumps", "--width", "2"],
    "plan": ["plan", "demo:transformer?d=4", "--budget", "10"],
}


def printed(arguments: list[str]) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text('name = "small"\n[grid]\nd = [2]\n')
    return tmp_path


@pytest.mark.parametrize("command", RUNS)
def test_what_is_printed_keeps_to_its_schema(command: str, folder: Path) -> None:
    if command == "ledger-show":
        printed(["recover", HEAD, "--ledger", "run.ledger"])
    content = printed(RUNS[command])
    check(command, content)
    if command == "sweep":
        check("sweep-plot", printed(["sweep", content["artifacts"]["table"], "--x", "d", "--y", "error"]))


@pytest.mark.parametrize("command", FAILURES)
def test_other_outcomes_keep_to_it_too(command: str, folder: Path) -> None:
    check(command, printed(FAILURES[command]))


def check(command: str, content: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(command))
    jsonschema.validate(content, schema_of(command))
    assert content["schema"] == f"unsoftmax/1/{command}"


def test_every_schema_is_printed_and_every_command_has_one() -> None:
    assert set(get_args(_Command)) == set(COMMANDS)
    done = CliRunner().invoke(app, ["schema", "recover"])
    assert json.loads(done.stdout) == schema_of("recover")
    assert set(RUNS) | {"serve", "sweep-plot"} == set(COMMANDS)  # serve: see test_servers.py


def test_a_schema_refuses_what_lacks_an_entry_or_has_another_type(folder: Path) -> None:
    content = printed(RUNS["check"])
    for broken in (
        {key: value for key, value in content.items() if key != "advice"},
        content | {"queries": "many"},
        content | {"schema": "unsoftmax/2/check"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema_of("check"))
