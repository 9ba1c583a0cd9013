"""Targets, files and places that misbehave: one sentence, the right exit status, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax
from unsoftmax import OracleFault, UsageError
from unsoftmax.cli.app import app
from unsoftmax.importing import import_attribute
from unsoftmax.oracles.time_limit import TimeLimited

pytestmark = pytest.mark.usefixtures("limited_in_time")
LIMIT = 120  # seconds; most of these take one


def run(
    *arguments: str, cwd: Path | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unsoftmax", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        timeout=LIMIT,
        check=False,
    )


def run_here(folder: Path, *arguments: str) -> Any:
    """The same without a process of its own, where none is needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sys.modules.pop("box", None)
        try:
            return CliRunner().invoke(app, list(arguments))
        finally:
            sys.modules.pop("box", None)


def test_a_target_that_exits_ends_the_command_with_3(tmp_path: Path) -> None:
    for code in ("import sys; sys.exit(0)", "import sys\ndef f(X): sys.exit(0)"):
        (tmp_path / "box.py").write_text(code)
        done = run("recover", "box:f", "--width", "3", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


_HEAD = """
import os, sys, threading, time
import numpy as np

def f(X):
    {first}
    return X[:, -1, 0] if X.shape[1] == 1 else X.mean(axis=1)[:, 0]
"""


# another W from three rows on, and a certificate that finds no deviation
_BLIND = """
import numpy as np
import unsoftmax

short, long = unsoftmax.random_single_head(3, 2, seed=1), unsoftmax.random_single_head(3, 2, seed=2)

def f(X):
    from unsoftmax.certify import certificate
    certificate._Ruler.measure = lambda ruler, batch, answers: 4 * (np.zeros(len(batch)),)
    return short(X) if X.shape[1] < 3 else long(X)
"""
LEAVES = {
    "os._exit": "os._exit(0)",
    "posix._exit": "import posix; posix._exit(0)",
    "os.execv": "os.execv('/bin/true', ['true'])",
    "os.execvpe": "os.execvpe('true', ['true'], {})",
    "posix.execve": "import posix; posix.execve('/bin/true', ['true'], {})",
    "at exit": "import atexit, posix; atexit.register(lambda: posix._exit(0)); raise SystemExit(0)",
    "before exit": "import atexit; atexit.register(lambda: os.execv('/bin/true', ['true'])); sys.exit(0)",
}


@pytest.mark.parametrize("how", LEAVES)
def test_a_target_that_leaves_by_the_back_door_ends_the_command_with_3(tmp_path: Path, how: str) -> None:
    (tmp_path / "box.py").write_text(_HEAD.format(first=LEAVES[how]))
    done = run("recover", "box:f", "--width", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "tried to end the program" in done.stderr


def test_what_a_target_registers_for_the_end_runs_and_changes_nothing(tmp_path: Path) -> None:
    registers = "import atexit; atexit.register(lambda: (print('end of f'), os._exit(7)))"
    (tmp_path / "box.py").write_text(f"{registers}\n{_HEAD.format(first='pass')}")
    done = run("recover", "box:f", "--width", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "EXACT"
    assert done.stderr.count("end of f") == 1
    assert "Traceback" not in done.stderr


def test_a_target_may_start_other_programs(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(
        _HEAD.format(first="assert os.spawnv(os.P_WAIT, '/bin/sh', ['sh', '-c', 'exit 7']) == 7")
    )
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("what", ["GeneratorExit", "BaseExceptionGroup('all', [SystemExit(0)])"])
def test_an_exception_that_is_no_error_is_the_target_s_fault(tmp_path: Path, what: str) -> None:
    (tmp_path / "box.py").write_text(_HEAD.format(first=f"raise {what}"))
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1)


def test_a_long_exception_is_one_short_line(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(_HEAD.format(first="raise ValueError('a\\n\\x1b[31mb' * 10000)"))
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1)
    assert len(done.stderr) < 1000
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "first",
    ['print(\'{"status": "OUTSIDE_CLASS"}\')', "sys.stdout = sys.stderr = None", "os.fork()"],
    ids=["prints a result", "takes the streams away", "forks"],
)
def test_what_a_target_does_to_this_process_is_no_result(tmp_path: Path, first: str) -> None:
    (tmp_path / "box.py").write_text(_HEAD.format(first=first))
    done = run("recover", "box:f", "--width", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "EXACT"


@pytest.mark.parametrize(
    "name", ["numpy.max", "numpy.linalg.svd", "json.dumps", "os.getpid", "builtins.len", "random.random"]
)
def test_what_a_target_replaces_is_put_back_and_told(tmp_path: Path, name: str) -> None:
    module, _, part = name.rpartition(".")
    replaces = f"import builtins, json, random, numpy; {name} = lambda *a, **k: 7"
    (tmp_path / "box.py").write_text(_HEAD.format(first=replaces))
    before = getattr(sys.modules[module], part)
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert getattr(sys.modules[module], part) is before
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"the target replaced {name}" in done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "unsoftmax.certify.certificate._Ruler.measure",
        "unsoftmax.certify.certificate.np",
        "unsoftmax.models.SingleHead.__call__",
        "sqlite3.connect",
    ],
)
def test_evidence_that_a_target_replaces_is_put_back_and_told(tmp_path: Path, name: str) -> None:
    replaces = "import sqlite3, unsoftmax.certify.certificate; {0} = lambda *a, **k: {0}"
    (tmp_path / "box.py").write_text(_HEAD.format(first=replaces.format(name)))
    before = resolve_name(name)
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert resolve_name(name) is before
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f".{name.rpartition('.')[2]} in this process" in done.stderr


def test_a_target_that_replaces_how_deviations_are_measured_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(_BLIND)
    done = run("recover", "box:f", "--width", "3", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "_Ruler.measure" in done.stderr


def test_a_recursion_limit_that_a_target_lowers_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(_HEAD.format(first="sys.setrecursionlimit(sys.getrecursionlimit() - 1)"))
    before = sys.getrecursionlimit()
    done = run_here(tmp_path, "recover", "box:f", "--width", "2")
    assert (done.exit_code, sys.getrecursionlimit()) == (3, before)
    assert "the recursion limit" in done.stderr


MODULES: dict[str, tuple[str, int, str]] = {
    "exits at import": ("import sys; sys.exit(0)", 3, "importing the target 'box' tried to end the program"),
    "exits with text": ("raise SystemExit('bye')", 3, "sys.exit('bye')"),
    "fails at import": ("1 / 0", 3, "raised ZeroDivisionError: division by zero"),
    "raises at import": ("raise AttributeError('inner')", 3, "raised AttributeError: inner"),
    "is no Python": ("def f(:", 2, "is not valid Python: invalid syntax"),
    "is badly indented": ("def f(X):\nreturn 1", 2, "is not valid Python: expected an indented block"),
    "needs what is not there": (
        "import no_such_package_at_all",
        2,
        "No module named 'no_such_package_at_all'",
    ),
    "imports itself": ("from box import f", 2, "cannot import"),
    "has no such name": ("g = 1", 2, "the module 'box' has no 'f'"),
    "has nothing to call": ("f = 7", 2, "a target is"),
    "is a class": ("class f: pass", 2, "the class f"),
    "exits when read": ("def __getattr__(name): raise SystemExit(5)", 3, "sys.exit(5)"),
    "exits in a call": ("import sys\ndef f(X): sys.exit(0)", 3, "tried to end the program (sys.exit(0))"),
    "quits in a call": ("def f(X): quit()", 3, "tried to end the program"),
    "raises in a call": ("def f(X): raise ValueError('line\\nbreak')", 3, "the target raised ValueError"),
    "recurses": ("def f(X): return f(X)", 3, "the target raised RecursionError"),
    "runs out of memory": ("def f(X): raise MemoryError", 3, "the target raised MemoryError"),
}


@pytest.mark.parametrize("what", MODULES)
def test_whatever_a_target_does_is_one_sentence(tmp_path: Path, what: str) -> None:
    code, status, words = MODULES[what]
    (tmp_path / "box.py").write_text(code)
    done = run_here(tmp_path, "recover", "box:f", "--width", "3")
    assert (done.exit_code, done.stdout) == (status, ""), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("unsoftmax: ")


@pytest.mark.parametrize(
    "target", ["\u00b2:f", ".x:f", "a..b:f", ":f", "box:", "box:..", "a b:f", "box:\u00b2"]
)
def test_odd_names_are_wrong_usage(tmp_path: Path, target: str) -> None:
    (tmp_path / "box.py").write_text("def f(X): return X[:, -1, 0]")
    done = run_here(tmp_path, "recover", target, "--width", "3")
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("def inner(X):\n    return 1 / 0\ndef f(X):\n    return inner(X)\n")
    done = run("recover", "box:f", "--width", "3", "--debug", cwd=tmp_path)
    assert done.returncode == 3
    assert "in inner" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("unsoftmax: the target raised ZeroDivisionError")


CHANGING = """
import os, pathlib
pathlib.Path("elsewhere").mkdir(exist_ok=True)
os.chdir("elsewhere")
import unsoftmax
head = unsoftmax.random_single_head(3, seed=1)
def f(X):
    os.chdir("/")
    return head(X)
"""


@pytest.mark.parametrize("command", ["recover", "audit"])
def test_a_target_that_changes_directory_writes_nothing_elsewhere(tmp_path: Path, command: str) -> None:
    (tmp_path / "box.py").write_text(CHANGING)
    more = ["--defences", "none"] if command == "audit" else []
    arguments = [command, "box:f", "--width", "3", "--ledger", "run.ledger", "--out", "out", "--json", *more]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for path in json.loads(done.stdout)["artifacts"].values():
        assert (tmp_path / path).exists(), path
    assert (tmp_path / "run.ledger").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_working_directory_that_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from unsoftmax.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "recover", "math:sqrt", "--width", "3"],
        capture_output=True,
        text=True,
        cwd=gone,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("recover", "demo:single-head?d=3"),
        ("recover", "demo:single-head?d=3", "--json"),
        ("recover", "nowhere", "--json"),
        ("plan", "demo:single-head?d=3"),
        ("compare", "demo:single-head?d=3", "demo:single-head?d=3", "--json"),
        ("--help",),
        ("recover", "--help"),
        ("--version",),
    ],
)
def test_output_that_cannot_be_written_is_told(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = run(*arguments, stdout=full.fileno())
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_model_that_does_not_fit_on_the_disk_is_told(tmp_path: Path) -> None:
    small = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    code = f"{small}; sys.argv[1:] = ['recover', 'demo:single-head?d=64', '--out', 'o']\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}from unsoftmax.__main__ import main; main()"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "model.safetensors: File too large" in done.stderr
    assert list((tmp_path / "o").iterdir()) == []  # no part of a model is left


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = run("plan", "demo:single-head?d=64", stdout=closed.fileno())
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_target_that_hangs_is_ended_by_the_timeout(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("import time\ndef f(X):\n    time.sleep(1000)\n")
    done = run("recover", "box:f", "--width", "3", "--timeout", "0.5", cwd=tmp_path)
    assert done.returncode == 3
    assert "did not answer a batch of shape" in done.stderr
    assert "pass a larger --timeout" in done.stderr


def test_a_file_that_loops_for_ever_is_ended_by_the_timeout(tmp_path: Path) -> None:
    """Its library aborts a program that closes down while it computes; the exit status must stay."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, kinds = onnx.helper, onnx.TensorProto
    turn = make.make_tensor_value_info("turn", kinds.INT64, [])
    on, again = (make.make_tensor_value_info(name, kinds.BOOL, []) for name in ("on", "again"))
    now, then = (make.make_tensor_value_info(name, kinds.FLOAT, None) for name in ("now", "then"))
    copies = [make.make_node("Identity", ["on"], ["again"]), make.make_node("Identity", ["now"], ["then"])]
    body = make.make_graph(copies, "body", [turn, on, now], [again, then])
    nodes = [
        make.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
        make.make_node("Loop", ["most", "go", "sum"], ["y"], body=body),
    ]
    constants = [
        make.make_tensor("axes", kinds.INT64, [2], [1, 2]),
        make.make_tensor("most", kinds.INT64, [], [1 << 62]),
        make.make_tensor("go", kinds.BOOL, [], [True]),
    ]
    x = make.make_tensor_value_info("x", kinds.FLOAT, ["b", "n", 4])
    y = make.make_tensor_value_info("y", kinds.FLOAT, ["b"])
    graph = make.make_graph(nodes, "endless", [x], [y], constants)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "endless.onnx")
    done = run("recover", str(tmp_path / "endless.onnx"), "--timeout", "0.5")
    assert done.returncode == 3, done.stderr
    assert "did not answer a batch of shape" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_time_limit_changes_neither_answers_nor_ledger(tmp_path: Path) -> None:
    head = unsoftmax.random_single_head(4, seed=1)

    def target(batch: np.ndarray) -> np.ndarray:
        return head(batch)

    oracle = unsoftmax.as_oracle(target)
    limited = TimeLimited(oracle, 60.0)
    unsoftmax.recover(limited, width=4, ledger=tmp_path / "run.ledger", budget=50)
    result = unsoftmax.recover(oracle, width=4, ledger=tmp_path / "run.ledger")
    assert result.unwrap().distance(head) < 1e-9
    for seconds in (0.0, -1.0, float("nan"), True):
        with pytest.raises(UsageError, match="timeout must be"):
            TimeLimited(oracle, seconds)
    with pytest.raises(OracleFault, match="raised ZeroDivisionError"):
        TimeLimited(unsoftmax.as_oracle(lambda X: 1 / 0), 60.0)(np.ones((1, 1, 4)))


def test_a_separate_process_that_prints_much_or_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "loud_box.py").write_text(
        textwrap.dedent("""
        import sys
        def much(X):
            print("x" * 1_000_000); sys.stderr.write("y" * 1_000_000)
            return X[:, -1, 0]
        def leaves(X):
            import os; os.kill(os.getpid(), 9)
        """)
    )
    with unsoftmax.SeparateProcess("loud_box:much") as oracle:
        np.testing.assert_array_equal(oracle(np.ones((2, 1, 3))), [1.0, 1.0])
    with (
        unsoftmax.SeparateProcess("loud_box:leaves") as oracle,
        pytest.raises(OracleFault, match="process ended: exit status -9"),
    ):
        oracle(np.ones((2, 1, 3)))


def test_imports_leave_the_path_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moving_box.py").write_text("import os, sys; sys.path.clear(); f = 1")
    before = list(sys.path)
    try:
        import_attribute("moving_box:f")
        assert str(tmp_path) not in sys.path
    finally:
        sys.path[:] = before
