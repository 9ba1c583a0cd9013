"""`unsoftmax demo`: a hidden head in another process, recovered while you watch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.common import (
    NOT_RECOVERED,
    RECOVERED,
    Budget,
    Json,
    Seed,
    print_json,
    reports_errors,
    show_progress,
    writable_folder,
)
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    from unsoftmax.models import SingleHead
    from unsoftmax.result import Result

__all__ = ["demo"]


@reports_errors
def demo(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which story: single-head.")] = "single-head",
    width: Annotated[int, typer.Option("--width", help="Width of the hidden head.", min=1)] = 64,
    rank: Annotated[int | None, typer.Option("--rank", help="Rank of the hidden W; the learner is not told.", min=0)] = 8,
    seed: Seed = 0,
    budget: Budget = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the picture and the model.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Recover a head hidden in another process and compare it with the truth."""
    import unsoftmax
    from unsoftmax.models import SingleHead
    from unsoftmax.oracles.separate_process import SeparateProcess
    from unsoftmax.targets import demo_model

    if name != "single-head":
        raise UsageError(f"there is no demo {name!r}; try: unsoftmax demo single-head")
    folder = writable_folder(out)
    rank = None if rank is None or rank >= width else rank
    target = f"demo:single-head?d={width}&seed={seed}" + ("" if rank is None else f"&r={rank}")
    with SeparateProcess(target) as oracle, show_progress() as progress:
        result = unsoftmax.recover(oracle, seed=seed, budget=budget, progress=progress)
    truth = demo_model(target)  # read only now, to compare
    assert isinstance(truth, SingleHead)
    if isinstance(result.model, SingleHead):
        result = replace(result, artifacts=_write(truth, result.model, folder, result))
    if as_json:
        distance = None if result.model is None else truth.distance(result.model)  # type: ignore[arg-type]
        print_json(result.as_json() | {"distance_to_truth": distance})
    else:
        typer.echo(_table(truth, result))
    raise typer.Exit(RECOVERED if result.status.recovered else NOT_RECOVERED)


def _write(truth: SingleHead, found: SingleHead, folder: Path, result: Result) -> dict[str, str]:
    from unsoftmax.audit.pictures import draw_recovery

    title = f"width {truth.width}, rank {found.rank}: {result.queries.learning:,} queries for {truth.parameters:,} parameters"
    picture = draw_recovery(truth.W, found.W, folder / "recovery.png", title=title)
    return {"picture": str(picture), "model": str(found.save(folder / "model.safetensors"))}


def _table(truth: SingleHead, result: Result) -> str:
    import numpy as np

    d = truth.width
    lines = [f"A head of width {d}, hidden in another process. Only its answers were seen.", "", f"status      {result.status}: {result.reason}"]
    if result.model is not None:
        found: SingleHead = result.model  # type: ignore[assignment]
        w_error = float(np.linalg.norm(found.W - truth.W)) / (float(np.linalg.norm(truth.W)) or 1.0)
        v_error = float(np.linalg.norm(found.v - truth.v) / np.linalg.norm(truth.v))
        lines += [
            "",
            f"{'':<12}{'true':>16}{'recovered':>16}{'relative error':>18}",
            f"{'rank of W':<12}{truth.rank:>16}{found.rank:>16}",
            f"{'|W|':<12}{np.linalg.norm(truth.W):>16.9f}{np.linalg.norm(found.W):>16.9f}{w_error:>18.1e}",
            f"{'|v|':<12}{np.linalg.norm(truth.v):>16.9f}{np.linalg.norm(found.v):>16.9f}{v_error:>18.1e}",
            f"{'W[0, 0]':<12}{truth.W[0, 0]:>16.9f}{found.W[0, 0]:>16.9f}",
        ]
    lines += [
        "",
        f"queries     {result.queries.learning:,} to learn {truth.parameters:,} parameters (the paper's Theorem 4.1: {d + d * d:,}),",
        f"            {result.queries.total - result.queries.learning:,} more to verify",
    ]
    lines += [f"{name:<11} {path}" for name, path in result.artifacts.items()]
    return "\n".join(lines)
