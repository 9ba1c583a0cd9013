"""`unsoftmax demo`: a model hidden in another process, recovered while you watch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.options import Budget, Json, Seed
from unsoftmax.cli.output import in_paragraph, print_json, writable_folder
from unsoftmax.cli.progress import show_progress

if TYPE_CHECKING:
    from unsoftmax.models import Model, MultiHead, SingleHead
    from unsoftmax.recovery.result import Result

__all__ = ["demo"]

_STORIES = {"single-head": (64, 8), "multi-head": (24, None)}  # from name to usual width and rank


@dataclass(frozen=True)
class _Hidden:
    """The size of the hidden model."""

    width: Annotated[
        int | None, typer.Option("--width", help="Width of the hidden model.", min=1, show_default=False)
    ] = None
    rank: Annotated[
        int | None,
        typer.Option(
            "--rank", help="Rank of the hidden W; the learner is not told.", min=0, show_default=False
        ),
    ] = None
    heads: Annotated[
        int,
        typer.Option("--heads", help="Number of hidden heads (multi-head); the learner is not told.", min=1),
    ] = 4


_USUAL = _Hidden()


@command("unsoftmax.recovery.recover", "unsoftmax.oracles.separate_process")
def demo(
    name: Annotated[
        Literal["single-head", "multi-head"], typer.Argument(help="Which model is hidden.")
    ] = "single-head",
    hidden: _Hidden = _USUAL,
    seed: Seed = 0,
    budget: Budget = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the picture and the model.")] = Path(
        "out/demo"
    ),
    as_json: Json = False,
) -> None:
    """Recover a model hidden in another process and compare it with the truth."""
    import unsoftmax
    from unsoftmax.oracles.separate_process import SeparateProcess
    from unsoftmax.recovery.inputs.demos import demo_model

    folder = writable_folder(out)
    target = _target(name, hidden, seed)
    with SeparateProcess(target) as oracle, show_progress() as progress:
        result = unsoftmax.recover(oracle, seed=seed, budget=budget, progress=progress)
    truth = demo_model(target)  # read only now, to compare
    if result.model is not None:
        result = replace(result, artifacts=_write(truth, result.model, folder, result))
    if as_json:
        same = result.model is not None and result.model.family == truth.family
        distance = truth.distance(result.model) if same else None  # type: ignore[arg-type]
        print_json("demo", result.as_json() | {"distance_to_truth": distance})
    else:
        typer.echo(_story(truth, result))
    raise typer.Exit(RECOVERED if result.status.recovered else NOT_RECOVERED)


def _target(name: str, hidden: _Hidden, seed: int) -> str:
    usual_width, usual_rank = _STORIES[name]
    d = usual_width if hidden.width is None else hidden.width
    r = usual_rank if hidden.rank is None else hidden.rank
    heads = hidden.heads
    target = f"demo:{name}?d={d}&seed={seed}" + (f"&heads={heads}" if name == "multi-head" else "")
    return target if r is None or r >= d else f"{target}&r={r}"


def _write(truth: Model, found: Model, folder: Path, result: Result) -> dict[str, str]:
    from unsoftmax.audit.drawings.head_switches import draw_staircase
    from unsoftmax.audit.drawings.matrices import draw_recovery
    from unsoftmax.models import MultiHead, SingleHead

    picture = folder / ("staircase.png" if isinstance(found, MultiHead) else "recovery.png")
    if isinstance(found, MultiHead):
        draw_staircase(found, picture)
    elif isinstance(found, SingleHead) and isinstance(truth, SingleHead):
        title = (
            f"width {truth.width}, rank {found.rank}: {result.queries.learning:,} queries for "
            f"{truth.parameters:,} parameters"
        )
        draw_recovery(truth.W, found.W, picture, title=title)
    return {"picture": str(picture), "model": str(found.save(folder / "model.safetensors"))}


def _story(truth: Model, result: Result) -> str:
    from unsoftmax.models import MultiHead, SingleHead

    d, found = truth.width, result.model
    what = f"{len(truth.heads)} heads" if isinstance(truth, MultiHead) else "A head"
    lines = [
        f"{what} of width {d}, hidden in another process. Only answers were seen.",
        "",
        in_paragraph("status", f"{result.status}: {result.reason}"),
    ]
    if isinstance(truth, SingleHead) and isinstance(found, SingleHead):
        lines += ["", *_one_head(truth, found)]
    elif isinstance(truth, MultiHead) and isinstance(found, MultiHead):
        lines += ["", *_several_heads(truth, found)]
    beside = (
        f"the paper's Theorem 4.1: {d + d * d:,}"
        if isinstance(truth, SingleHead)
        else "the paper: not identifiable in general, Proposition 7.1"
    )
    lines += [
        "",
        f"queries     {result.queries.learning:,} to learn {truth.parameters:,} parameters ({beside}),",
        f"            {result.queries.total - result.queries.learning:,} more to verify",
    ]
    lines += [f"{name:<11} {path}" for name, path in result.artifacts.items()]
    return "\n".join(lines)


def _one_head(truth: SingleHead, found: SingleHead) -> list[str]:
    import numpy as np

    w_error = float(np.linalg.norm(found.W - truth.W)) / (float(np.linalg.norm(truth.W)) or 1.0)
    v_error = float(np.linalg.norm(found.v - truth.v) / np.linalg.norm(truth.v))
    return [
        f"{'':<12}{'true':>16}{'recovered':>16}{'relative error':>18}",
        f"{'rank of W':<12}{truth.rank:>16}{found.rank:>16}",
        f"{'|W|':<12}{np.linalg.norm(truth.W):>16.9f}{np.linalg.norm(found.W):>16.9f}{w_error:>18.1e}",
        f"{'|v|':<12}{np.linalg.norm(truth.v):>16.9f}{np.linalg.norm(found.v):>16.9f}{v_error:>18.1e}",
        f"{'W[0, 0]':<12}{truth.W[0, 0]:>16.9f}{found.W[0, 0]:>16.9f}",
    ]


def _several_heads(truth: MultiHead, found: MultiHead) -> list[str]:
    """A line a hidden head, beside the recovered one that is nearest to it: the order of heads leaves no
    trace."""
    import numpy as np

    lines = [
        f"{'head':<8}{'|W| true':>16}{'|W| recovered':>16}{'rank':>6}{'error of W':>14}{'error of v':>14}"
    ]
    for number, head in enumerate(truth.canonical().heads, 1):
        nearest = min(found.heads, key=lambda other: float(np.linalg.norm(other.W - head.W)))
        w_norm, v_norm = float(np.linalg.norm(head.W)), float(np.linalg.norm(head.v))
        w_error, v_error = (
            float(np.linalg.norm(nearest.W - head.W)) / w_norm,
            float(np.linalg.norm(nearest.v - head.v)) / v_norm,
        )
        lines.append(
            f"{number:<8}{w_norm:>16.9f}{float(np.linalg.norm(nearest.W)):>16.9f}"
            f"{nearest.rank:>6}{w_error:>14.1e}{v_error:>14.1e}"
        )
    return lines
