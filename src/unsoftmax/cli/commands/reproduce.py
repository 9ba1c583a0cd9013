"""`unsoftmax reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.options import Json, Seed
from unsoftmax.cli.output import print_json, say, writable_folder

__all__ = ["reproduce"]


@command(
    "unsoftmax.lab.reproduce",
    interrupted="nothing was written. --fast takes small grids, --theorem 4.1 one part, --workers N more "
    "processes",
)
def reproduce(
    theorem: Annotated[
        list[str] | None,
        typer.Option("--theorem", help="Only this statement, such as 4.1; repeatable.", show_default=False),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Small grids: about a minute.")] = False,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for tables, pictures and the page.")] = Path(
        "out/reproduce"
    ),
    workers: Annotated[int, typer.Option("--workers", help="Processes that share the experiments.")] = 1,
    as_json: Json = False,
) -> None:
    """Check every statement of the paper by measurement (exit status 0 if all hold)."""
    from unsoftmax.lab.reproduce import reproduce as run

    folder = writable_folder(out)
    done = run(
        folder,
        theorems=theorem or (),
        fast=fast,
        seed=seed,
        workers=workers,
        progress=say if sys.stderr.isatty() else None,
    )
    if as_json:
        checks = [
            {"theorem": key, "claim": check.claim, "measured": check.measured, "holds": check.holds}
            for key, check in done.checks
        ]
        print_json(
            "reproduce",
            {
                "holds": done.holds,
                "checks": checks,
                "artifacts": {"page": str(done.page), "folder": str(folder)},
            },
        )
    else:
        for key, check in done.checks:
            typer.echo(f"{'holds' if check.holds else 'FAILS':<6}{key:<13}{check.claim}: {check.measured}")
        typer.echo(f"page  {done.page}")
    raise typer.Exit(RECOVERED if done.holds else NOT_RECOVERED)
