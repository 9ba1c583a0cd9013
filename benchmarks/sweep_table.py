"""2,000 small cells: a local pool, Dask with 2 workers, Dask with a worker killed on the way, and a driver
killed on the way give one table.

python -m benchmarks.sweep_table # 2,000 cells, a few minutes python -m benchmarks.sweep_table --fast # 100
cells
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

SPEC = """
[[grid]]
d = [2, 3, 4]
noise = ["exact", "tolerance=1e-4"]
seed = {{count = {seeds}}}
[[grid]]
family = ["multi-head"]
d = [3]
heads = [2]
seed = {{count = {seeds}}}
[[grid]]
d = [4]
r = [5]
seed = {{count = {seeds}}}
[[grid]]
d = [3, 5]
learner = ["theorem-4.1"]
seed = {{count = {seeds}}}
"""  # ten rows a seed; those with r > d fail on purpose


def start(spec: Path, out: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "unsoftmax", "sweep", str(spec), "--out", str(out), *options]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finished_cells(out: Path) -> int:
    """How many rows are safe; read from a copy of the bytes, since the driver holds the lock."""
    try:
        content = (out / "cells.sqlite").read_bytes()
        db = sqlite3.connect(":memory:")
        db.deserialize(content)
        return int(db.execute("SELECT count(*) FROM cells").fetchone()[0])
    except (OSError, sqlite3.Error, MemoryError):  # not there yet, or caught in the middle of a write
        return 0


def when(out: Path, n_cells: int, action: Callable[[], None], driver: subprocess.Popen[bytes]) -> None:
    while driver.poll() is None and finished_cells(out) < n_cells:
        time.sleep(0.05)
    action()


def children(pid: int) -> list[int]:
    """All descendants that compute, deepest last."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *children(child)]
    return found


def a_worker(pid: int) -> int:
    """A descendant that runs cells, not the resource tracker of multiprocessing."""
    for child in children(pid):
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise SystemExit("no worker was found to be killed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    seeds = 10 if parser.parse_args().fast else 200
    cells = 10 * seeds
    print("| run | cells | time / first | exit status | digest of table.csv |")
    print("|---|---|---|---|---|")
    digests = set()
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        spec = Path(place, "small.toml")
        spec.write_text(SPEC.format(seeds=seeds))

        def finish(name: str, driver: subprocess.Popen[bytes], out: Path, began: float) -> None:
            said = driver.stderr.read().decode().strip() if driver.stderr is not None else ""
            if not (out / "table.csv").exists():
                raise SystemExit(f"{name}: {said}")
            digest = blake2b((out / "table.csv").read_bytes(), digest_size=8).hexdigest()
            status = driver.wait()
            digests.add(digest)
            rows = (out / "table.csv").read_text().count("\n") - 1
            taken.append(time.perf_counter() - began)
            print(f"| {name} | {rows:,} | {taken[-1] / taken[0]:.1f} | {status} | {digest} |", flush=True)

        runs: list[tuple[str, tuple[str, ...], str]] = [
            ("local pool of 2", ("--workers", "2"), ""),
            ("Dask, 2 workers", ("--dask", "local", "--workers", "2"), ""),
            ("Dask, one worker killed", ("--dask", "local", "--workers", "2"), "worker"),
            ("local pool, one worker killed", ("--workers", "2"), "worker"),
            ("local pool, driver killed and started again", ("--workers", "2"), "driver"),
        ]
        for number, (name, options, victim) in enumerate(runs):
            out, began = Path(place, str(number)), time.perf_counter()
            driver = start(spec, out, *options)
            if victim == "worker":
                when(
                    out,
                    cells // 3,
                    lambda driver=driver: os.kill(a_worker(driver.pid), signal.SIGKILL),  # type: ignore[misc]
                    driver,
                )
            elif victim == "driver":
                when(out, cells // 3, driver.kill, driver)
                driver.communicate()
                before = finished_cells(out)
                driver = start(spec, out, *options)
                name += f" ({before:,} cells kept)"
            finish(name, driver, out, began)
    print(
        f"\n{'One table, bit for bit.' if len(digests) == 1 else 'The tables differ.'} Exit status 1: some "
        "cells fail on purpose, as rows."
    )
    raise SystemExit(len(digests) != 1)


if __name__ == "__main__":
    main()
