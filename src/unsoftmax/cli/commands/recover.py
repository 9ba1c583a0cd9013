"""`unsoftmax recover TARGET`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from unsoftmax.cli.command import command, flags_of
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.flags import with_flags
from unsoftmax.cli.options import Asking, Inputs, Json, LedgerPath, Servers, Target
from unsoftmax.cli.output import in_paragraph, print_json, writable_folder
from unsoftmax.cli.progress import show_progress
from unsoftmax.cli.reach import how_to_go_on, opened

if TYPE_CHECKING:
    from unsoftmax.oracles import Oracle
    from unsoftmax.recovery.result import Result

__all__ = ["describe", "recover"]

# those that need no fact about the target
_Learner = Literal["default", "theorem-4.1", "theorem-4.1-structured"]

_ENDINGS = {
    "EXACT": "all parameters were recovered, up to rounding",
    "WITHIN_BOUND": "all parameters were recovered, within the error below",
}


@dataclass(frozen=True)
class _Reach(Servers):
    """How the target is reached."""

    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            help="Ask from Dask workers: 'local', or the address of a scheduler. 'here': none.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True)
class _Method(Inputs):
    """What is known of the inputs, and who learns."""

    learner: Annotated[
        _Learner,
        typer.Option(
            "--learner",
            metavar="NAME",
            help=f"A theorem of the paper instead of the usual learner: {', '.join(get_args(_Learner)[1:])}.",
        ),
    ] = "default"


@command("unsoftmax.recovery.recover")
def recover(
    target: Target,
    asking: Asking,
    reach: _Reach,
    method: _Method,
    ledger: LedgerPath = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the recovered model (.safetensors).", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recover the parameters behind TARGET from its answers alone."""
    import unsoftmax
    from unsoftmax.learners.language_model.parts import save_parts

    folder = None if out is None else writable_folder(out)
    place = None if ledger is None else ledger.absolute()  # the target's code may change the directory
    try:
        with show_progress() as progress, _asked(target, reach, asking.outputs) as oracle:
            result = unsoftmax.recover(
                oracle,
                **asking.arguments(),
                learner=None if method.learner == "default" else method.learner,
                ledger=place,
                progress=progress,
                **method.inputs(),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how_to_go_on(place)) from None
    if folder is not None and result.model is not None:
        result = replace(result, artifacts={"model": str(result.model.save(folder / "model.safetensors"))})
    if folder is not None and result.parts:
        kept = str(save_parts(result.parts, folder / "parts.npz"))
        result = replace(result, artifacts=dict(result.artifacts) | {"parts": kept})
    if as_json:
        print_json("recover", result.as_json())
    else:
        typer.echo(with_flags(describe(result), flags_of(recover)))
    raise typer.Exit(RECOVERED if result.status.recovered else NOT_RECOVERED)


@contextmanager
def _asked(target: str, reach: _Reach, outputs: int | None) -> Iterator[Oracle]:
    """The target asked from here, or from the workers of a Dask cluster."""
    if reach.dask is None:
        with opened(target, reach, outputs) as oracle:
            yield oracle
        return
    from unsoftmax.lab.shared_oracle import SharedOracle
    from unsoftmax.lab.workers import crew_of

    if reach.dask == "here":
        yield SharedOracle(target, None, http=reach.http())
        return
    with crew_of(reach.dask) as crew:
        yield SharedOracle(target, crew, http=reach.http())


def describe(result: Result) -> str:
    """The result for people, one fact a paragraph, the most important ones first."""
    if result.status.recovered:
        lines = [f"{result.status}: {_ENDINGS[str(result.status)]}"]
    else:
        lines = [in_paragraph("", f"{result.status}: {result.reason}", indent=0)]
        lines.append(in_paragraph("try", result.advice))
    if result.model is not None:
        size = f"{_heads(result.model.ranks)}, {result.model.parameters:,} parameters"
        lines.append(in_paragraph("model", f"{result.family}, {result.size}, {size}"))
    if result.error_bound is not None:
        lines.append(f"error       at most {result.error_bound:.1e} relative, measured on fresh probes")
    for name, part in result.parts.items():
        text = f"{name}: error at most {part.error_bound:.1e} relative; left open: {part.gauge}"
        lines.append(in_paragraph("part", text))
    phases = ", ".join(f"{phase} {count:,}" for phase, count in result.queries.by_phase.items())
    again = f"; {result.queries.retries:,} requests were sent again" if result.queries.retries else ""
    lines.append(in_paragraph("queries", f"{result.queries.total:,} ({phases}){again}"))
    if result.status.recovered:
        lines.append(in_paragraph("proof", result.reason))
    lines += [f"{name:<11} {path}" for name, path in result.artifacts.items()]
    return "\n".join(lines)


def _heads(ranks: list[int]) -> str:
    """Ranks in words: 'rank 4', '8 heads of rank 2', '3 heads of ranks 2, 4, 4'."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    equal = len(set(ranks)) == 1
    return f"{len(ranks)} heads of " + (
        f"rank {ranks[0]}" if equal else f"ranks {', '.join(map(str, ranks))}"
    )
