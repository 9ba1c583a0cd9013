"""`unsoftmax sweep SPEC.toml`, and pictures of the table that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.options import Json
from unsoftmax.cli.output import print_json, say, writable_folder
from unsoftmax.cli.progress import counting_bar
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    from unsoftmax.lab.sweep import SweepProgress

__all__ = ["sweep"]


@dataclass(frozen=True)
class _Work:
    """Who computes the cells, and what is written."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes. Default: one per processor.", show_default=False),
    ] = None
    dask: Annotated[
        str | None,
        typer.Option("--dask", help="'local', or the address of a Dask scheduler.", show_default=False),
    ] = None
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write table.parquet instead of table.csv (needs pyarrow).")
    ] = False
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run the cells that ended in an error again.")
    ] = False


@dataclass(frozen=True)
class _Drawing:
    """What a plot of a table shows."""

    x: Annotated[
        str | None, typer.Option("--x", help="Draw a table: the horizontal axis.", show_default=False)
    ] = None
    y: Annotated[str, typer.Option("--y", help="Draw a table: the vertical axis.")] = "error"
    by: Annotated[
        str | None,
        typer.Option("--by", help="Draw a table: one line for each value of this axis.", show_default=False),
    ] = None


@command("unsoftmax.lab.sweep")
def sweep(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            help="A grid (.toml); or the table of a finished sweep (.csv, .parquet) to draw.",
            show_default=False,
        ),
    ],
    work: _Work,
    drawing: _Drawing,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the results. Default: out/sweep/NAME.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a grid of recoveries into one table; or draw the table of a finished sweep."""
    from unsoftmax.lab.sweep import Plot, plot_table, read_spec, read_table
    from unsoftmax.lab.sweep import sweep as run

    if spec.suffix in (".csv", ".parquet"):
        if drawing.x is None:
            raise UsageError("to draw a table name its horizontal axis, such as --x d --y error --by learner")
        plot = Plot(drawing.x, drawing.y, drawing.by)
        picture = plot_table(
            read_table(spec),
            plot,
            (writable_folder(out) if out is not None else spec.parent) / plot.file_name,
        )
        if as_json:
            print_json("sweep-plot", {"picture": str(picture)})
        else:
            typer.echo(f"picture     {picture}")
        return
    read = read_spec(spec)
    folder = writable_folder(out if out is not None else Path("out/sweep") / read.name)
    try:
        with _show_cells() as progress:
            done = run(
                read,
                folder,
                workers=work.workers,
                dask=work.dask,
                parquet=work.parquet,
                retry_failed=work.retry_failed,
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
            "sweep",
            facts
            | {
                "artifacts": {
                    "table": str(done.table),
                    "folder": str(done.folder),
                    "plots": [str(path) for path in done.plots],
                }
            },
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
    with counting_bar("sweep", "cells") as update:

        def show(now: SweepProgress) -> None:
            if update is not None:
                update(f"sweep ({now.failed} failed)" if now.failed else "sweep", now.done, now.total)

        yield None if update is None else show
