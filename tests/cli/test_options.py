"""Options: one name each, choices in the help, a configuration file, messages that name flags, completion."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import unsoftmax
from unsoftmax.cli.app import app
from unsoftmax.cli.flags import with_flags
from unsoftmax.cli.options import Asking, Family
from unsoftmax.recovery.choose import family_named
from unsoftmax.serve import Faults, ModelServer

ROOT: Any = get_command(app)
COMMANDS: dict[str, Any] = {name: ROOT.commands[name] for name in ROOT.commands if name != "ledger"}
COMMANDS["ledger show"] = ROOT.commands["ledger"].commands["show"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("unsoftmax")
    before = logger.level
    yield
    logger.setLevel(before)
    for handler in list(logging.getLogger().handlers):
        if type(handler) is logging.StreamHandler:
            logging.getLogger().removeHandler(handler)


def invoke(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env=environment)


def options_of(command: Any) -> dict[str, Any]:
    return {
        flag: parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for flag in parameter.opts
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name: str) -> None:
    assert {"--json", "--config", "--verbose", "-v", "--debug"} <= set(options_of(COMMANDS[name]))
    short, long = (invoke(*name.split(), flag) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_one_flag_has_one_meaning() -> None:
    """The same flag is the same argument in all commands, and the same argument has the same flag."""
    found: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for flag, parameter in options_of(command).items():
            if flag.startswith("--"):
                found.setdefault(flag, set()).add(parameter.name)
    assert {flag: names for flag, names in found.items() if len(names) > 1} == {}
    assert "--price" not in found
    assert "--norm-bound" not in found


def test_choices_are_shown_in_the_help() -> None:
    for name, flag, values in (
        ("recover", "--family", get_args(Family)),
        ("recover", "--learner", ("default", "theorem-4.1")),
        ("audit", "--defences", ("auto", "all", "none")),
        ("serve", "--datatype", ("FP64", "FP32")),
    ):
        text = re.sub(r"[\s\u2502]+", "", invoke(name, "--help", COLUMNS="600", TERM="dumb").stdout)
        assert flag in text
        assert all(value in text for value in values), (name, values)


def test_families_are_those_that_recover_takes() -> None:
    for family in get_args(Family):
        family_named(family)
    with pytest.raises(unsoftmax.UsageError, match="family"):
        unsoftmax.recover("demo:single-head?d=2", family="rnn")


def test_the_group_of_options_are_arguments_of_recover() -> None:
    names = set(inspect.signature(unsoftmax.recover).parameters)
    assert set(Asking().arguments()) <= names


def test_version() -> None:
    for flag in ("--version", "-V"):
        done = invoke(flag)
        assert (done.exit_code, done.stdout) == (0, f"unsoftmax {unsoftmax.__version__}\n")


def test_outputs_tolerance_and_learner_reach_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vector_box.py").write_text(
        "import numpy as np, unsoftmax\n"
        "head = unsoftmax.SingleHead(np.eye(3), np.arange(1.0, 7.0).reshape(3, 2))\n"
        "def f(X): return head(X)\n"
    )
    done = invoke("recover", "vector_box:f", "--width", "3", "--outputs", "2", "--json")
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (0, "EXACT")
    done = invoke("recover", "demo:single-head?d=4", "--tolerance", "1e-6", "--json")
    assert json.loads(done.stdout)["status"] == "WITHIN_BOUND"
    done = invoke("recover", "demo:single-head?d=4", "--learner", "theorem-4.1", "--json")
    facts = json.loads(done.stdout)
    learning = facts["queries"]["total"] - facts["queries"]["by_phase"]["verification"]
    assert (facts["status"], learning) == ("EXACT", 4 + 4 * 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "width 5 but the target has width 4; pass width=4",
            "width 5 but the target has width 4; pass --width 4",
        ),
        (
            "input_bound must be a finite number > 0, not -1",
            "--input-bound must be a finite number > 0, not -1",
        ),
        ("If large inputs overflow, pass input_bound", "If large inputs overflow, pass --input-bound"),
        ("larger inputs (input_bound) would help", "larger inputs (--input-bound) would help"),
        ("for vector answers pass outputs=3", "for vector answers pass --outputs 3"),
        ("'demo:single-head?d=64&r=8&seed=0' or width=", "'demo:single-head?d=64&r=8&seed=0' or width="),
        ("the seed of the ledger, and the outputs", "the seed of the ledger, and the outputs"),
    ],
)
def test_messages_name_flags(text: str, expected: str) -> None:
    flags = {"width": "--width", "input_bound": "--input-bound", "outputs": "--outputs", "seed": "--seed"}
    assert with_flags(text, flags) == expected


def test_messages_of_the_command_name_flags_and_those_of_python_arguments() -> None:
    done = invoke("recover", "demo:single-head?d=4", "--width", "5", "--json")
    assert json.loads(done.stdout)["reason"].endswith("pass --width 4")
    assert done.stderr.endswith("pass --width 4\n")
    with pytest.raises(unsoftmax.UsageError, match="pass width=4"):
        unsoftmax.recover("demo:single-head?d=4", width=5)
    done = invoke("recover", "demo:single-head?d=4", "--input-bound", "-1")
    assert "--input-bound must be" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit demo:single-head?d=4 --fail-on leak --max-price 5", "pass --price-per-1k PRICE"),
        ("recover math:sqrt --width 6 --vocabulary 9", "leave out --width"),
        ("check localhost:8000", "write 'http://localhost:8000/v2/models/NAME'"),
    ],
)
def test_wrong_usage_is_told_the_way_out(line: str, said: str) -> None:
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 2
    assert said in done.output


def test_a_configuration_file_gives_defaults(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'seed = 3\nbudget = 20\nprice-per-1k = 2.0\n[recover]\nbudget = 30\n[plan]\nfamily = "auto"\n'
    )
    facts = json.loads(invoke("recover", "demo:single-head?d=8", "--config", str(config), "--json").stdout)
    assert facts["status"] == "BUDGET_SPENT"
    assert "of 30 queries" in facts["reason"]
    facts = json.loads(
        invoke("recover", "demo:single-head?d=8", "--config", str(config), "--budget", "25", "--json").stdout
    )
    assert "of 25 queries" in facts["reason"]
    facts = json.loads(
        invoke("recover", "demo:single-head?d=8", "--json", UNSOFTMAX_CONFIG=str(config)).stdout
    )
    assert "of 30 queries" in facts["reason"]
    assert invoke("plan", "demo:single-head?d=8", "--config", str(config)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed = 3", "no command has the option 'speed'"),
        ("[recover]\nprice-per-1k = 2", "recover has no option 'price-per-1k'"),
        ("[fly]\nseed = 2", "there is no command [fly]"),
        ("seed = ", "is not valid TOML"),
        ("seed = 'many'", "Invalid value for '--seed'"),
        ("a = " + "[" * 10_000, "nested too deeply"),
    ],
)
def test_wrong_configurations_are_wrong_usage(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    done = invoke("recover", "demo:single-head?d=4", "--config", str(tmp_path / "run.toml"), COLUMNS="300")
    assert done.exit_code == 2
    assert words in re.sub(r"[\s\u2502]+", " ", done.stderr)
    absent = invoke(
        "recover", "demo:single-head?d=4", "--config", str(tmp_path / "absent.toml"), COLUMNS="300"
    )
    assert absent.exit_code == 2


def test_verbose_tells_phases_and_retries_and_never_a_token(tmp_path: Path) -> None:
    head = unsoftmax.random_single_head(4, seed=2)
    with ModelServer(unsoftmax.as_oracle(head), token="secret-77", faults=Faults(unavailable=0.3)) as server:
        command = [
            sys.executable,
            "-m",
            "unsoftmax",
            "recover",
            server.url,
            "--ledger",
            str(tmp_path / "l"),
            "-v",
        ]
        environment = os.environ | {"UNSOFTMAX_HTTP_TOKEN": "secret-77"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment
        )
    assert done.returncode == 0, done.stderr
    assert "phase verification" in done.stderr
    assert "the server answered 503; attempt" in done.stderr
    assert "0 calls are kept from earlier runs" in done.stderr
    assert "secret-77" not in done.stderr
    assert done.stdout.startswith("EXACT")


def test_a_second_audit_with_other_options_gets_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [("demo:single-head?d=3",), ("demo:single-head?d=4",), ("demo:single-head?d=3", "--seed", "1")]
    folders = []
    for arguments in [*runs, runs[0]]:
        done = invoke("audit", *arguments, "--defences", "none", "--json")
        assert done.exit_code == 0, done.stderr
        folders.append(Path(json.loads(done.stdout)["artifacts"]["report"]).parent)
    assert len(set(folders)) == 3
    assert folders[3] == folders[0]
    assert all(re.fullmatch(r"single-head-d-\d-[0-9a-f]{6}", folder.name) for folder in folders)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unsoftmax", "--show-completion", shell],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # the shell that is named counts, not the one that the tests run in
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_UNSOFTMAX_COMPLETE" in done.stdout


def test_completion_names_commands_and_options() -> None:
    for line, words in (("unsoftmax rec", {"recover"}), ("unsoftmax recover --fam", {"--family"})):
        environment = os.environ | {
            "_UNSOFTMAX_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-c", "from unsoftmax.__main__ import main; main()"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
        assert words <= set(done.stdout.split()), done
