"""`unsoftmax defend TARGET`: the attack against the target behind each defence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Asking, Json, LedgerPath, Target
from unsoftmax.cli.output import in_paragraph, print_json, writable_folder
from unsoftmax.cli.progress import counting_bar
from unsoftmax.cli.stand_in import holds_model, model_behind

if TYPE_CHECKING:
    from unsoftmax.audit.defences.table import Defences

__all__ = ["bar", "defend", "describe", "n_workers"]


@dataclass(frozen=True)
class _Trial:
    """What is tried, on which inputs, by how many processes."""

    defence: Annotated[
        list[str] | None,
        typer.Option(
            "--defence",
            help="For instance decimals=2+input-bound=10; repeatable. Default: the usual ones and pairs.",
        ),
    ] = None
    sequences: Annotated[
        Path | None,
        typer.Option("--sequences", help="Honest inputs, a .npy array (B, N, d).", show_default=False),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes. Default: one per processor.", min=1, show_default=False),
    ] = None


@command("unsoftmax.audit.defences.defend", "unsoftmax.audit.drawings.figures")
def defend(
    target: Target,
    asking: Asking,
    trial: _Trial,
    ledger: LedgerPath = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for defences.json and defences.svg.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack TARGET behind each defence, and say what honest users would pay."""
    from unsoftmax.audit.defences import defend as room
    from unsoftmax.audit.drawings.figures import draw_defences

    folder = None if out is None else writable_folder(out)
    honest = None if trial.sequences is None else room.read_sequences(trial.sequences)
    stand_in = not holds_model(target)
    model = model_behind(target, asking, ledger).model
    with bar() as progress:
        table = room.defend(
            model,
            defences=trial.defence or None,
            sequences=honest,
            seed=asking.seed,
            workers=trial.workers or n_workers(),
            stand_in=stand_in,
            progress=progress,
        )
    content = table.as_json()
    if folder is not None:
        content["artifacts"] = {"json": str(folder / "defences.json"), "plot": str(folder / "defences.svg")}
        (folder / "defences.svg").write_text(draw_defences(table.ranked, alone=True), encoding="utf-8")
        (folder / "defences.json").write_text(
            json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    if as_json:
        print_json("defend", content)
        return
    typer.echo(describe(table))
    for name, path in content.get("artifacts", {}).items():
        typer.echo(f"{name:<11} {path}")


def describe(table: Defences) -> str:
    """The table for people."""
    wide = max(len("defence"), *(len(row.label) for row in table.rows))
    lines = [
        f"{'#':>2} {'defence':<{wide}} {'attack ended':<16}{'queries':>9} {'parameters':>10} {'answers':>8} "
        f"{'users lose':>10} {'refused':>7}"
    ]
    for number, row in enumerate(table.ranked, 1):
        ended = row.status.lower().replace("_", " ") if row.attacked else "no attack known"
        numbers = [
            "-" if value is None else f"{value:.1e}" for value in (row.parameter_error, row.functional_error)
        ]
        lines.append(
            f"{number:>2} {row.label:<{wide}} {ended:<16}{row.queries:>9,} {numbers[0]:>10} {numbers[1]:>8} "
            f"{row.distortion:>10.1e} {row.refused:>7.1%}"
        )
    notes = [f"{row.label}: the attack was adapted ({row.adapted})" for row in table.ranked if row.adapted]
    if any(not row.attacked for row in table.rows):
        notes.append(
            "no attack known: this library has no attack on such answers of such a model; that is no "
            "evidence of safety"
        )
    notes += [
        "parameters, answers: the relative errors that the attacker is left with; users lose: the relative "
        "change of honest answers",
        f"honest users: {table.honest}",
    ]
    lines += ["", *(in_paragraph("", note, indent=0) for note in notes)]
    return "\n".join([*lines, "", in_paragraph("", table.advice, indent=0)])


def n_workers() -> int:
    """One process per processor that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar of defences done, on a terminal."""
    with counting_bar("defences", "defences") as update:
        yield None if update is None else lambda done, total, label: update(label, done, total)
