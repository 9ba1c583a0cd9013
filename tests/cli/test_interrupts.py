"""Ctrl-C at any moment: exit status 130, one sentence, no traceback, nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Says when the command has taken over interrupts, which is the first thing it does. Before that it is Python
# itself that starts, and nobody can tell it what to do with an interrupt.
START = """
import _signal as signal, sys
from unsoftmax.__main__ import main

take = signal.signal

def first(number, handler):
    signal.signal = take
    before = take(number, handler)
    print("begun", flush=True)
    return before

signal.signal = first
main()
"""
LIMIT = 60.0  # seconds, on a busy machine; usually a fraction of one


def interrupted(delay: float, arguments: list[str], cwd: Path) -> tuple[int, str]:
    """Exit status and standard error of a command that gets Ctrl-C `delay` seconds after it has begun."""
    command = [sys.executable, "-c", START, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=cwd
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begun\n"
        time.sleep(delay)
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does it: to the command and to its children
        _, said = driver.communicate(timeout=LIMIT)
    return driver.returncode, said


COMMANDS = {
    "reproduce": ["reproduce", "--out", "o"],
    "defend": ["defend", "demo:single-head?d=16", "--workers", "2"],
    "demo": ["demo", "--width", "700", "--out", "o"],
    "audit": ["audit", "demo:multi-head?d=64&heads=8", "--out", "o"],
}


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5, 1.2])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_moment_gives_a_traceback(command: str, delay: float, tmp_path: Path) -> None:
    status, said = interrupted(delay, COMMANDS[command], tmp_path)
    if not said and delay > 0.5:  # it was finished before; Python itself may still have been closing down
        assert status in (0, -signal.SIGINT)
        return
    assert said.count("\n") == 1, said
    assert said.startswith("unsoftmax: interrupted; ")
    assert status == 130


SWALLOWS = """
import os, signal, time

class Finalized:
    interrupted = False

    def __del__(self):
        if not Finalized.interrupted:
            Finalized.interrupted = True
            os.kill(os.getpid(), signal.SIGINT)

def target(X):
    Finalized()
    time.sleep(0.05)
    return X.sum(axis=(1, 2))
"""


def test_an_interrupt_in_a_finalizer_ends_the_command(tmp_path: Path) -> None:
    """Python prints what a finalizer raises, and goes on."""
    (tmp_path / "box.py").write_text(SWALLOWS)
    command = [sys.executable, "-m", "unsoftmax", "recover", "box:target", "--width", "4"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.startswith("unsoftmax: interrupted; ")
    assert ended.returncode == 130


def test_workers_end_with_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, "reproduce", "--workers", "2", "--out", "o"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    ) as driver:
        deadline = time.monotonic() + LIMIT
        while len(members(driver.pid)) < 3:  # the command, a helper of the pool, and workers
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(driver.pid, signal.SIGINT)
        _, said = driver.communicate(timeout=LIMIT)  # all experiments take several minutes
    assert "Traceback" not in said
    assert not list((tmp_path / "o").rglob("*.html"))  # nothing that was under way is waited for
    while members(driver.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def members(session: int) -> list[int]:
    """The processes of a session that are alive."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(facts[3]) == session and facts[0] != "Z":
            found.append(int(place.parent.name))
    return found


def test_ignored_interrupts_stay_ignored(tmp_path: Path) -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from unsoftmax.__main__ import main; print('begun', flush=True); main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "recover", "demo:single-head?d=4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begun\n"
        driver.send_signal(signal.SIGINT)
        out, _ = driver.communicate(timeout=LIMIT)
    assert driver.returncode == 0
    assert out.startswith("EXACT")


def test_nothing_heavy_is_loaded_before_interrupts_are_taken_care_of() -> None:
    code = (
        "import sys, re, signal; before = set(sys.modules)\n"
        "import unsoftmax.__main__; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert set(loaded.stdout.split()) <= {"__future__", "unsoftmax", "unsoftmax.__main__"}
