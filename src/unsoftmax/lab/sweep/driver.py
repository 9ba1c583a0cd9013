"""Runs the cells that are not finished yet, keeps each as it comes, and writes the table."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unsoftmax.lab.files import write_atomically
from unsoftmax.lab.provenance import provenance
from unsoftmax.lab.sweep.cell import FAILED, RESULTS, Cell, run_cell
from unsoftmax.lab.sweep.plot import NothingToDraw, plot_table
from unsoftmax.lab.sweep.spec import Spec
from unsoftmax.lab.sweep.store import Store
from unsoftmax.lab.sweep.table import needs_pyarrow, write_table
from unsoftmax.lab.workers import Crew, crew_of, first_done

__all__ = ["Finished", "SweepProgress", "sweep"]

_BATCH_SECONDS = 1.0  # a task's worth of cells: far above the 5 ms that a task costs, and little to lose
_LARGEST_BATCH = 64  # cells in a task, so that a worker that dies loses few
# how often a cell's worker may die before the cell is run alone, and before it is blamed
_LOSSES_TOGETHER, _LOSSES_ALONE = 2, 2


@dataclass(frozen=True)
class SweepProgress:
    """Cells finished (earlier runs included), failed, and in all."""

    done: int
    failed: int
    total: int


@dataclass(frozen=True)
class Finished:
    """What a sweep leaves behind."""

    folder: Path
    table: Path
    plots: tuple[Path, ...]
    cells: int
    computed: int
    failed: int
    workers_lost: int
    notes: tuple[str, ...] = ()  # plots that could not be drawn, and why


def sweep(
    spec: Spec,
    out: str | Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    parquet: bool = False,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Finished:
    """Runs every cell of `spec` once and writes the table to the folder `out`; cells that an earlier run
    finished are not run again.

    workers: number of processes. dask: 'local', or the address of a scheduler. The table does not depend on
    either, nor on losses of workers.

    >>> import tempfile
    >>> from unsoftmax.lab.sweep.spec import parse_spec
    >>> spec = parse_spec("[grid]\\nd = [3, 4]", "small")
    >>> with tempfile.TemporaryDirectory() as out:
    ...     first = sweep(spec, out, workers=1)
    ...     first.computed, sweep(spec, out, workers=1).computed
    (2, 0)
    """
    if parquet:
        needs_pyarrow()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with Store(folder / "cells.sqlite") as store:
        rows = store.rows()
        if retry_failed:
            store.forget(key for key, row in rows.items() if row["status"] == FAILED)
            rows = store.rows()
        left = [cell for cell in spec.cells if cell.key not in rows]
        state = _State(store, rows, {cell.key for cell in spec.cells}, progress)
        state.report()
        if left:
            with crew_of(dask, workers) as crew:
                _run(crew, left, state)
        return _write(spec, folder, state, parquet=parquet, computed=len(left))


class _State:
    """What is finished, on disk and in memory."""

    def __init__(
        self,
        store: Store,
        rows: dict[str, Any],
        wanted: set[str],
        progress: Callable[[SweepProgress], None] | None,
    ) -> None:
        self.store, self.rows, self.wanted, self.progress = store, rows, wanted, progress
        self.workers_lost = 0
        self.mean_seconds: float | None = None
        self.done = self.failed = 0
        self._count(rows[key] for key in wanted if key in rows)

    def keep(self, done: list[tuple[dict[str, Any], float]]) -> None:
        self.store.keep(done)
        self.rows.update((row["cell"], row) for row, _ in done)
        self._count(row for row, _ in done)
        mean = sum(seconds for _, seconds in done) / max(1, len(done))
        self.mean_seconds = mean if self.mean_seconds is None else 0.7 * self.mean_seconds + 0.3 * mean
        self.report()

    def report(self) -> None:
        if self.progress is not None:
            self.progress(SweepProgress(self.done, self.failed, len(self.wanted)))

    def _count(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self.done += 1
            self.failed += row["status"] == FAILED

    @property
    def batch(self) -> int:
        """How many cells make a task, from how long they took until now."""
        return (
            1
            if self.mean_seconds is None
            else int(min(_LARGEST_BATCH, max(1.0, _BATCH_SECONDS / max(self.mean_seconds, 1e-9))))
        )


def _run(crew: Crew, cells: list[Cell], state: _State) -> None:
    waiting, suspects = deque(cells), deque[Cell]()
    losses: Counter[str] = Counter()
    running: dict[Future[Any], list[Cell]] = {}
    while waiting or running or suspects:
        while waiting and len(running) < 2 * crew.size:
            batch = [
                waiting.popleft()
                for _ in range(min(state.batch, 1 + len(waiting) // (2 * crew.size), len(waiting)))
            ]
            running[crew.submit(_run_batch, batch)] = batch
        if not running:
            _run_alone(crew, suspects.popleft(), state)
            continue
        lost = _collect(crew, running, state, first_done(crew, running))
        if not lost:
            continue
        state.workers_lost += 1
        crew.renew()
        # a broken pool takes all its tasks along
        lost += _collect(crew, running, state, {future for future in running if future.done()})
        for cell in lost:
            losses[cell.key] += 1
            (suspects if losses[cell.key] >= _LOSSES_TOGETHER else waiting).append(cell)


def _collect(
    crew: Crew, running: dict[Future[Any], list[Cell]], state: _State, done: set[Future[Any]]
) -> list[Cell]:
    """Keeps what is done; returns the cells whose worker was lost."""
    lost: list[Cell] = []
    for future in done:
        batch = running.pop(future)
        try:
            state.keep(future.result())
        except crew.lost:
            lost += batch
    return lost


def _run_alone(crew: Crew, cell: Cell, state: _State) -> None:
    """A cell whose worker died while others ran is run alone; if the worker dies again, that is its row."""
    for _ in range(_LOSSES_ALONE):
        future = crew.submit(_run_batch, [cell])
        first_done(crew, [future])
        try:
            state.keep(future.result())
            return
        except crew.lost:
            state.workers_lost += 1
            crew.renew()
    row = {"cell": cell.key, **asdict(cell), **dict.fromkeys(RESULTS), "status": FAILED}
    state.keep(
        [
            (
                row
                | {
                    "fault": "WorkerLost: the process that ran this cell died every time, "
                    "the last times with no other cell beside it"
                },
                0.0,
            )
        ]
    )


def _run_batch(cells: list[Cell]) -> list[tuple[dict[str, Any], float]]:
    done = []
    for cell in cells:
        start = time.perf_counter()
        row = run_cell(cell)
        done.append((row, time.perf_counter() - start))
    return done


def _write(spec: Spec, folder: Path, state: _State, *, parquet: bool, computed: int) -> Finished:
    rows = [state.rows[cell.key] for cell in spec.cells]
    table = write_table(rows, folder / ("table.parquet" if parquet else "table.csv"))
    times = io.StringIO()
    writer = csv.writer(times, lineterminator="\n")
    seconds = state.store.seconds()
    writer.writerows([("cell", "seconds"), *((cell.key, f"{seconds[cell.key]:.4f}") for cell in spec.cells)])
    write_atomically(folder / "times.csv", times.getvalue().encode())
    write_atomically(folder / "spec.toml", spec.text.encode())
    digest = blake2b(table.read_bytes(), digest_size=8).hexdigest()
    origin = {
        "sweep": spec.name,
        "cells": len(rows),
        "table": table.name,
        "table_digest": digest,
        **provenance(),
    }
    write_atomically(folder / "provenance.json", json.dumps(origin, indent=2).encode())
    plots, notes = [], []
    for plot in spec.plots:
        try:
            plots.append(plot_table(rows, plot, folder / plot.file_name))
        except NothingToDraw as error:  # the table is what counts, and it is written
            notes.append(f"{plot.file_name} was not drawn: {error}")
    failed = sum(row["status"] == FAILED for row in rows)
    return Finished(
        folder, table, tuple(plots), len(rows), computed, failed, state.workers_lost, tuple(notes)
    )
