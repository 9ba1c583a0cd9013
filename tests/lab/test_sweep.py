"""Sweeps: one row a cell, resumable, the same table whoever computes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import unsoftmax
from unsoftmax.cli.app import app
from unsoftmax.lab.sweep import (
    COLUMNS,
    Cell,
    Plot,
    SweepProgress,
    plot_table,
    read_spec,
    read_table,
    run_cell,
    sweep,
)
from unsoftmax.lab.sweep.spec import parse_spec

SMALL = """
[[grid]]
family = ["single-head", "multi-head"]
d = [3, 4]
heads = [2]
noise = ["exact", "tolerance=1e-4"]
seed = {count = 2}
[[grid]]
d = [4]
r = [5]
[[grid]]
d = [3]
learner = ["tests.lab.hostile:failing"]
"""


def test_a_grid_over_families_holds_no_cell_twice() -> None:
    spec = parse_spec('[grid]\nfamily = ["single-head", "multi-head"]\nheads = [2, 3]\nd = [4]', "x")
    assert [(cell.family, cell.heads) for cell in spec.cells] == [
        ("single-head", None),
        ("multi-head", 2),
        ("multi-head", 3),
    ]
    assert len({cell.key for cell in spec.cells}) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("d = [4]", "name, [[grid]] and [[plot]]"),
        ("", "at least one [[grid]]"),
        ("[grid]\nwidth = [4]", "no axis 'width'"),
        ("[grid]\nd = []", "leaves no cell"),
        ("[grid]\nd = ['4']", "must be a whole number"),
        ("[grid]\nd = [true]", "must be a whole number"),
        ("[grid]\nfamily = ['one']", "no family 'one'"),
        ("[grid]\nlearner = ['best']", "no learner 'best'"),
        ("[grid]\nlearner = ['no.such:thing']", "cannot be imported"),
        ("[grid]\nnoise = ['hiss']", "no defence 'hiss'"),
        ("[grid]\ndefence = ['decimals=two']", "needs a whole number"),
        ("[grid]\nnoise = ['clipped=x']", "needs a number"),
        ("[grid]\nd = {count = 3}", "only seed takes"),
        ("[grid]\nseed = {first = 0, count = 20000000}", "split it"),
        ("[grid]\nd = [4]\n[[plot]]\nx = 'speed'", "no axis 'speed'"),
        ("[grid]\nd = [4]\n[[plot]]\nx = 'd'\ny = 'beauty'", "a plot shows"),
        ("[grid", "not valid TOML"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(unsoftmax.UsageError, match=says.replace("[", r"\[").replace("]", r"\]")):
        parse_spec(text, "x")


def test_a_spec_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(unsoftmax.UsageError, match="cannot read the sweep"):
        read_spec(tmp_path / "none.toml")


def test_rows_tell_outcome_bill_and_error() -> None:
    row = run_cell(Cell(d=5, r=2, seed=7))
    assert tuple(row) == COLUMNS
    assert (row["status"], row["parameters"]) == ("EXACT", 5 + 2 * (10 - 2))
    assert row["queries"] == row["learning"] + row["verification"]
    assert row["error"] <= row["error_bound"] < 1e-9
    assert run_cell(Cell(d=5, r=2, seed=7)) == row
    assert run_cell(Cell(d=5, budget=3))["status"] == "BUDGET_SPENT"
    assert run_cell(Cell(d=5, defence="labels+budget=9"))["queries"] <= 9
    assert run_cell(Cell(d=4, learner="theorem-4.1"))["learning"] == 4 + 16


@pytest.mark.parametrize(
    "cell",
    [
        Cell("relu-network", d=3, neurons=4),
        Cell("multi-head", d=4, heads=2, biases=True),
        Cell(d=4, defence="decimals=3"),
        Cell(d=4, noise="flipped-labels=0.02"),
    ],
)
def test_every_family_and_defence_gives_a_row(cell: Cell) -> None:
    row = run_cell(cell)
    assert row["fault"] is None
    assert row["status"] in ("EXACT", "WITHIN_BOUND")
    assert row["bound_holds"]


@pytest.mark.parametrize(
    ("cell", "queries"),
    [
        (Cell(d=6, r=1, learner="theorem-5.1"), 6 + 2 * 3 * 6),
        (Cell(d=4, learner="theorem-6.1", noise="tolerance=1e-9"), 4 + 16),
        (Cell(d=4, learner="theorem-6.1", defence="decimals=10"), 4 + 16),
    ],
)
def test_theorems_are_given_what_they_assume(cell: Cell, queries: int) -> None:
    row = run_cell(cell)
    assert (row["learning"], row["bound_holds"], row["fault"]) == (queries, True, None)


def test_a_theorem_about_one_head_refuses_several() -> None:
    assert "one head" in run_cell(Cell(family="multi-head", d=4, learner="theorem-5.1"))["fault"]
    assert run_cell(Cell(d=2, learner="theorem-b.1", noise="labels"))["fault"] is None


def test_tables_keep_every_bit_and_finished_cells_are_not_run_again(tmp_path: Path) -> None:
    spec = parse_spec(SMALL, "small")
    seen: list[SweepProgress] = []
    first = sweep(spec, tmp_path, workers=2, progress=seen.append)
    assert (first.cells, first.computed, first.failed, first.workers_lost) == (18, 18, 2, 0)
    assert (seen[0].done, seen[-1]) == (0, SweepProgress(18, 2, 18))
    rows = read_table(first.table)
    assert [row["cell"] for row in rows] == [cell.key for cell in spec.cells]
    assert rows[0] == run_cell(spec.cells[0])
    assert "r <= d" in rows[-2]["fault"]
    assert rows[-1]["fault"] == "MemoryError: no room for the answers"
    before = first.table.read_bytes()
    again = sweep(spec, tmp_path, workers=1)
    assert again.computed == 0
    assert again.table.read_bytes() == before
    more = sweep(parse_spec(SMALL + "[[grid]]\nd = [2]", "small"), tmp_path, workers=1)
    assert (more.cells, more.computed) == (19, 1)
    assert sweep(spec, tmp_path, workers=1, retry_failed=True).computed == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cells.sqlite",
        "provenance.json",
        "spec.toml",
        "table.csv",
        "times.csv",
    ]


def test_a_cell_that_kills_its_worker_is_a_row_and_takes_nobody_along(tmp_path: Path) -> None:
    spec = parse_spec(
        '[[grid]]\nd = [2]\nlearner = ["tests.lab.hostile:deadly", "default"]\n\n[[grid]]\nd = [3]', "deadly"
    )
    done = sweep(spec, tmp_path, workers=2)
    rows = read_table(done.table)
    assert [row["status"] for row in rows if row["learner"] == "default"] == ["EXACT"] * 2
    assert all(row["fault"].startswith("WorkerLost") for row in rows if row["learner"] != "default")
    assert done.failed == 1


def test_a_cell_that_kills_dask_workers_is_the_same_row(tmp_path: Path) -> None:
    spec = parse_spec(
        '[[grid]]\nd = [2]\nlearner = ["tests.lab.hostile:deadly", "default"]\n\n[[grid]]\nd = [3]', "deadly"
    )
    done = sweep(spec, tmp_path / "dask", workers=2, dask="local")
    assert (done.failed, done.workers_lost > 0) == (1, True)
    assert done.table.read_bytes() == sweep(spec, tmp_path / "here", workers=2).table.read_bytes()


def test_dask_gives_the_same_table(tmp_path: Path) -> None:
    spec = parse_spec(SMALL, "small")
    here = sweep(spec, tmp_path / "here", workers=1)
    there = sweep(spec, tmp_path / "there", workers=2, dask="local")
    assert here.table.read_bytes() == there.table.read_bytes()


def test_a_driver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[grid]\nd = [2, 3, 4]\nseed = {count = 20}")
    command = [
        sys.executable,
        "-m",
        "unsoftmax",
        "sweep",
        str(tmp_path / "s.toml"),
        "--workers",
        "1",
        "--out",
    ]
    driver = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    store = tmp_path / "killed" / "cells.sqlite"
    while driver.poll() is None and not (
        store.exists() and store.stat().st_size > 24_000
    ):  # some rows are safe
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    spec = read_spec(tmp_path / "s.toml")
    resumed = sweep(spec, tmp_path / "killed", workers=1)
    assert resumed.computed < 60
    assert resumed.table.read_bytes() == sweep(spec, tmp_path / "whole", workers=1).table.read_bytes()


@pytest.mark.parametrize("options", [("--workers", "1"), ("--dask", "local", "--workers", "1")])
def test_control_c_says_how_to_go_on_and_nothing_else(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[grid]\nd = [8]\nseed = {count = 2000}")
    command = [
        sys.executable,
        "-m",
        "unsoftmax",
        "sweep",
        str(tmp_path / "s.toml"),
        "--out",
        str(tmp_path / "o"),
        *options,
    ]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    store = tmp_path / "o" / "cells.sqlite"
    while driver.poll() is None and not (
        store.exists() and store.stat().st_size > 16_000
    ):  # some rows are safe
        time.sleep(0.02)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does it: to the driver and to its workers
    _, said = driver.communicate()
    assert driver.returncode == 130
    assert said == (
        f"unsoftmax: interrupted; finished cells are kept in {tmp_path / 'o'}: run the same command again to "
        "go on\n"
    )


def test_a_full_disk_is_a_sentence_and_what_was_finished_is_safe(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[grid]\nd = [2]\nseed = {count = 60}")
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    limit += "; runpy.run_module('unsoftmax', run_name='__main__')"
    arguments = ["sweep", str(tmp_path / "s.toml"), "--workers", "1", "--out", str(tmp_path / "o")]
    done = subprocess.run(
        [sys.executable, "-c", limit, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert "those kept before are safe, so make room and run the same command again" in done.stderr
    assert "Traceback" not in done.stderr
    assert sweep(read_spec(tmp_path / "s.toml"), tmp_path / "o", workers=1).computed < 60


def test_two_drivers_do_not_share_a_folder(tmp_path: Path) -> None:
    from unsoftmax.lab.sweep.store import Store

    with (
        Store(tmp_path / "cells.sqlite"),
        pytest.raises(unsoftmax.UsageError, match="in use by another sweep"),
    ):
        Store(tmp_path / "cells.sqlite")


def test_cells_of_other_code_are_not_mixed_in(tmp_path: Path) -> None:
    import sqlite3

    spec = parse_spec("[grid]\nd = [2]", "x")
    sweep(spec, tmp_path, workers=1)
    db = sqlite3.connect(tmp_path / "cells.sqlite")
    db.execute("UPDATE made_by SET code = 'other'")
    db.commit()
    db.close()
    with pytest.raises(unsoftmax.UsageError, match="other code"):
        sweep(spec, tmp_path, workers=1)


def test_plots_come_from_the_table_and_are_the_same_bytes(tmp_path: Path) -> None:
    rows = [
        run_cell(Cell(d=d, noise=noise, seed=seed))
        for d in (2, 4)
        for noise in ("exact", "tolerance=1e-3")
        for seed in (0, 1)
    ]
    for plot in (Plot("d", "error", "noise"), Plot("noise", "recovered"), Plot("d", "queries_per_parameter")):
        pictures = [plot_table(rows, plot, tmp_path / f"{name}.png").read_bytes() for name in "ab"]
        assert pictures[0] == pictures[1]
        assert pictures[0].startswith(b"\x89PNG")
    with pytest.raises(unsoftmax.UsageError, match="choose another y"):
        plot_table([run_cell(Cell(d=2, budget=1))], Plot("d"), tmp_path / "c.png")


def test_parquet_without_pyarrow_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(unsoftmax.UsageError, match="needs pyarrow"):
        sweep(parse_spec("[grid]\nd = [2]", "x"), tmp_path, workers=1, parquet=True)
    assert list(tmp_path.iterdir()) == []  # said before anything ran


def test_a_plot_without_figures_costs_nothing_but_a_note(tmp_path: Path) -> None:
    done = sweep(parse_spec("[grid]\nd = [2]\nbudget = [1]\n[[plot]]\nx = 'd'", "x"), tmp_path, workers=1)
    assert done.plots == ()
    assert "error-over-d.png was not drawn" in done.notes[0]
    assert len(read_table(done.table)) == 1


def test_a_table_that_is_none_says_so(tmp_path: Path) -> None:
    row = ["x"] * len(COLUMNS)
    for name, text in (
        ("foreign.csv", "a,b\n1,2\n"),
        ("damaged.csv", ",".join(COLUMNS) + "\n" + ",".join(row) + "\n"),
        ("bytes.csv", "\udcff"),
    ):
        (tmp_path / name).write_text(text, errors="surrogateescape")
        with pytest.raises(unsoftmax.UsageError, match=r"not a table of a sweep|cannot read the table"):
            read_table(tmp_path / name)


def test_the_number_of_workers_is_the_business_of_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(unsoftmax.UsageError, match="has its own workers; leave out"):
        sweep(parse_spec("[grid]\nd = [2]", "x"), tmp_path, workers=2, dask="tcp://127.0.0.1:9")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.toml").write_text('[grid]\nd = [2, 3]\n[[plot]]\nx = "d"\n')
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["sweep", *arguments])

    done = run("s.toml", "--workers", "1", "--out", "o")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2 computed now" in done.stdout
    assert (tmp_path / "o" / "error-over-d.png").exists()
    drawn = run("o/table.csv", "--x", "d", "--y", "learning", "--json")
    assert '"o/learning-over-d.png"' in drawn.stdout
    assert run("o/table.csv").exit_code == 2
    assert run("none.toml").exit_code == 2
    none = run("s.toml", "--workers", "0", "--out", "p", "--json")
    assert (none.exit_code, json.loads(none.stdout)["reason"]) == (
        2,
        "at least one worker is needed, not 0; leave the number out for one a core",
    )
    assert run("s.toml", "--dask", "tcp://127.0.0.1:9", "--workers", "0").exit_code == 2
