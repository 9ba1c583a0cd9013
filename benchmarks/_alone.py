"""A method in a process of its own: its time without loading code, and the peak of its memory with it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["alone", "report"]


def alone(module: str, job: dict[str, Any]) -> dict[str, Any]:
    """What `python -m MODULE --job JOB` reports."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--job", json.dumps(job)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{module}, job {job}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(warm_up: Callable[[], object], work: Callable[[], dict[str, Any]]) -> None:
    """Runs `work` after `warm_up`, which loads the code that it needs; prints what it found, its seconds and
    the peak of the process in megabytes."""
    warm_up()
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            found
            | {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        )
    )
