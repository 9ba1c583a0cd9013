"""`unsoftmax recover TARGET`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unsoftmax.cli.common import (
    NOT_RECOVERED,
    RECOVERED,
    Budget,
    Json,
    LedgerPath,
    Out,
    Seed,
    Target,
    Width,
    print_json,
    reports_errors,
    show_progress,
    writable_folder,
)

if TYPE_CHECKING:
    from unsoftmax.oracles import Oracle
    from unsoftmax.recovery.result import Result

__all__ = ["describe", "recover"]


@reports_errors
def recover(
    target: Target,
    width: Width = None,
    family: Annotated[str, typer.Option("--family", help="auto, or the family when it is known.")] = "auto",
    seed: Seed = 0,
    budget: Budget = None,
    input_bound: Annotated[
        float | None,
        typer.Option("--input-bound", help="Largest norm of a row that may be sent.", show_default=False),
    ] = None,
    ledger: LedgerPath = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", help="Servers: most requests at a time.", min=1, show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Servers: most queries a second.", show_default=False)
    ] = None,
    headers: Annotated[
        Path | None,
        typer.Option(
            "--headers", help="Servers: file of headers, a 'Name: value' a line.", show_default=False
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            help="Ask from Dask workers: 'local', a scheduler's address, or 'here' for none.",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Recover the parameters behind TARGET from its answers alone."""
    import unsoftmax

    folder = None if out is None else writable_folder(out)
    given = {"concurrency": concurrency, "rate": rate, "headers": None if headers is None else str(headers)}
    http = {name: value for name, value in given.items() if value is not None}
    with show_progress() as progress, _reach(target, http, dask) as oracle:
        result = unsoftmax.recover(
            oracle,
            width=width,
            family=family,
            seed=seed,
            budget=budget,
            input_bound=input_bound,
            ledger=ledger,
            progress=progress,
        )
    if folder is not None and result.model is not None:
        result = replace(result, artifacts={"model": str(result.model.save(folder / "model.safetensors"))})
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(describe(result))
    raise typer.Exit(RECOVERED if result.status.recovered else NOT_RECOVERED)


@contextmanager
def _reach(target: str, http: dict[str, Any], dask: str | None) -> Iterator[Oracle]:
    """The target asked from here, or from the workers of a Dask cluster."""
    if dask is None:
        from unsoftmax.recovery.targets import as_oracle

        yield as_oracle(target, http=http)
        return
    from unsoftmax.lab.shared_oracle import SharedOracle
    from unsoftmax.lab.workers import crew_of

    if dask == "here":
        yield SharedOracle(target, None, http=http)
        return
    with crew_of(dask) as crew:
        yield SharedOracle(target, crew, http=http)


def describe(result: Result) -> str:
    """The result for people, a fact a line."""
    lines = [f"{result.status}: {result.reason}"]
    if result.model is not None:
        ranks = ", ".join(map(str, result.model.ranks))
        lines.append(
            f"model       {result.family}, width {result.width}, rank {ranks}, {result.model.parameters:,} "
            "parameters"
        )
    phases = ", ".join(f"{phase} {count:,}" for phase, count in result.queries.by_phase.items())
    again = f"; {result.queries.retries:,} requests were sent again" if result.queries.retries else ""
    lines.append(f"queries     {result.queries.total:,} ({phases}){again}")
    if result.error_bound is not None:
        lines.append(f"error       at most {result.error_bound:.1e} relative, measured on fresh probes")
    lines += [f"{name:<11} {path}" for name, path in result.artifacts.items()]
    return "\n".join(lines)
