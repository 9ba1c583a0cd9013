"""`unsoftmax sweep SPEC.toml`, and pictures of the table that it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.common import (
    NOT_RECOVERED,
    RECOVERED,
    Json,
    print_json,
    reports_errors,
    say,
    writable_folder,
)
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    from unsoftmax.lab.sweep import SweepProgress

__all__ = ["sweep"]


@reports_errors
def sweep(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            help="A grid (.toml); or the table of a finished sweep (.csv, .parquet) to draw.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the results (default: out/sweep/NAME).", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes (default: one a core).", show_default=False)
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", help="'local', or the address of a Dask scheduler.", show_default=False),
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write table.parquet instead of table.csv (needs pyarrow).")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run cells again that ended in an error.")
    ] = False,
    x: Annotated[
        str | None, typer.Option("--x", help="Draw a table: the axis to the right.", show_default=False)
    ] = None,
    y: Annotated[str, typer.Option("--y", help="Draw a table: the figure shown.")] = "error",
    by: Annotated[
        str | None,
        typer.Option("--by", help="Draw a table: one line for each value of this axis.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a grid of recoveries as one table, resumable; or draw the table of a finished one (--x, --y,
    --by)."""
    from unsoftmax.lab.sweep import Plot, plot_table, read_spec, read_table
    from unsoftmax.lab.sweep import sweep as run

    if spec.suffix in (".csv", ".parquet"):
        if x is None:
            raise UsageError(
                "to draw a table say what goes to the right, such as --x d --y error --by learner"
            )
        plot = Plot(x, y, by)
        picture = plot_table(
            read_table(spec),
            plot,
            (writable_folder(out) if out is not None else spec.parent) / plot.file_name,
        )
        print_json({"picture": str(picture)}) if as_json else typer.echo(f"picture     {picture}")
        return
    read = read_spec(spec)
    folder = writable_folder(out if out is not None else Path("out/sweep") / read.name)
    try:
        with _show_cells() as progress:
            done = run(
                read,
                folder,
                workers=workers,
                dask=dask,
                parquet=parquet,
                retry_failed=retry_failed,
                progress=progress,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"finished cells are kept in {folder}: run the same command again to go on"
        ) from None
    if as_json:
        facts = {
            "cells": done.cells,
            "computed": done.computed,
            "failed": done.failed,
            "workers_lost": done.workers_lost,
        }
        print_json(
            facts
            | {
                "artifacts": {
                    "table": str(done.table),
                    "folder": str(done.folder),
                    "plots": [str(path) for path in done.plots],
                }
            }
        )
    else:
        typer.echo(
            f"cells       {done.cells:,}: {done.computed:,} computed now, {done.cells - done.computed:,} "
            f"from before, {done.failed:,} failed"
        )
        typer.echo(f"table       {done.table}")
        for picture in done.plots:
            typer.echo(f"picture     {picture}")
    for note in done.notes:
        say(f"unsoftmax: {note}")
    raise typer.Exit(RECOVERED if done.failed == 0 else NOT_RECOVERED)


@contextmanager
def _show_cells() -> Iterator[Callable[[SweepProgress], None] | None]:
    """A bar over cells with the time left, on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sweep", total=None)

        def show(now: SweepProgress) -> None:
            bar.update(
                task,
                description=f"sweep ({now.failed} failed)" if now.failed else "sweep",
                completed=now.done,
                total=now.total,
            )

        yield show
