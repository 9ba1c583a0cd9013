"""`unsoftmax defend TARGET`: the attack against the target behind each defence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.common import (
    Budget,
    Json,
    LedgerPath,
    Seed,
    Target,
    Width,
    print_json,
    reports_errors,
    say,
    show_progress,
    writable_folder,
)
from unsoftmax.errors import NotRecovered, UsageError

if TYPE_CHECKING:
    from unsoftmax.audit.defend import Defences
    from unsoftmax.models import Model

__all__ = ["Behind", "bar", "defend", "model_behind", "n_workers"]


@reports_errors
def defend(
    target: Target,
    width: Width = None,
    defence: Annotated[
        list[str] | None,
        typer.Option(
            "--defence",
            help="For instance decimals=2+input-bound=10; repeatable. Default: the usual ones and pairs.",
        ),
    ] = None,
    sequences: Annotated[
        Path | None,
        typer.Option("--sequences", help="Honest inputs, a .npy array (B, N, d).", show_default=False),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes; default: one a processor.", min=1, show_default=False),
    ] = None,
    seed: Seed = 0,
    budget: Budget = None,
    ledger: LedgerPath = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for defences.json and defences.svg.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack TARGET behind each defence, and say what honest users would pay."""
    from unsoftmax.audit import defend as room
    from unsoftmax.audit.drawings.figures import draw_defences

    folder = None if out is None else writable_folder(out)
    honest = None if sequences is None else room.read_sequences(sequences)
    stand_in = not holds_model(target)
    model = model_behind(target, width, seed, budget, ledger).model
    with bar() as progress:
        table = room.defend(
            model,
            defences=defence or None,
            sequences=honest,
            seed=seed,
            workers=workers or n_workers(),
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
        print_json(content)
        return
    typer.echo(describe(table))
    for name, path in content.get("artifacts", {}).items():
        typer.echo(f"{name:<11} {path}")


def holds_model(target: str) -> bool:
    """Whether the target's own parameters are at hand, so that no query is needed."""
    return target.startswith("demo:") or target.endswith(".safetensors")


@dataclass(frozen=True)
class Behind:
    """A target's model and how well it is known: relative error of the parameters, error of the constant, and
    whether the scale shows at all."""

    model: Model
    bound: float = 0.0
    constant_bound: float = 0.0
    free_scale: bool = False


def model_behind(
    target: str, width: int | None, seed: int, budget: int | None, ledger: Path | None
) -> Behind:
    """The target's own model where its file is at hand, else the one recovered from it."""
    import unsoftmax
    from unsoftmax.audit.defend import model_of

    if holds_model(target):
        model = model_of(target)
        if width is not None and width != model.width:
            raise UsageError(
                f"width {width} but {target} has width {model.width}; pass --width {model.width}"
            )
        return Behind(model)
    with show_progress() as progress:
        result = unsoftmax.recover(
            target, width=width, seed=seed, budget=budget, ledger=ledger, progress=progress
        )
    if result.model is None:
        raise NotRecovered(
            f"{target} shows its answers only and could not be recovered: {result.reason}", result
        )
    say(f"{target}: the model recovered with {result.queries.total:,} queries stands in for the target")
    labels = any(finding.subject == "answers" and "labels" in finding.value for finding in result.findings)
    return Behind(result.model, result.error_bound or 0.0, result.constant_bound or 0.0, labels)


def describe(table: Defences) -> str:
    """The table for people."""
    lines = [
        f"{'defence':<52} {'attack ended':<16} {'queries':>9} {'parameters':>11} {'answers':>9} "
        f"{'users lose':>11} {'refused':>8}"
    ]
    for row in table.ranked:
        ended = row.status.lower().replace("_", " ") if row.attacked else "not attacked"
        numbers = [
            "-" if value is None else f"{value:.1e}" for value in (row.parameter_error, row.functional_error)
        ]
        lines.append(
            f"{row.label:<52} {ended:<16} {row.queries:>9,} {numbers[0]:>11} {numbers[1]:>9} "
            f"{row.distortion:>11.1e} {row.refused:>8.1%}"
        )
    if any(not row.attacked for row in table.rows):
        lines.append(
            "not attacked: there is no attack on such answers of such a model here, which is no evidence of "
            "safety"
        )
    lines += [
        "parameters, answers: relative errors of the attacker; users lose: distortion of honest answers, "
        "relative",
        f"honest users: {table.honest}",
    ]
    return "\n".join([*lines, "", table.advice])


def n_workers() -> int:
    """One process a processor that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar of defences done, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as shown:
        task = shown.add_task("defences", total=None)
        yield lambda done, all_, label: shown.update(task, description=label, completed=done, total=all_)
