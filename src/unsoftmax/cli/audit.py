"""`unsoftmax audit TARGET`: identify, plan, learn, certify, report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    Target,
    Width,
    bar_aside,
    print_json,
    reports_errors,
    say,
    show_progress,
    writable_folder,
)
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    from unsoftmax.audit.pipeline import Audit
    from unsoftmax.oracles import Oracle

__all__ = ["audit"]

_WORTH_A_POOL = 200  # parameters from which starting processes pays
_MOST_FOR_DEFENCES = 3_000  # parameters of a model whose defences are tried unasked


@reports_errors
def audit(
    target: Target,
    width: Width = None,
    family: Annotated[str, typer.Option("--family", help="auto, or the family when it is known.")] = "auto",
    seed: Seed = 0,
    budget: Budget = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="How far an answer may be off; else found out.", show_default=False),
    ] = None,
    input_bound: Annotated[
        float | None,
        typer.Option("--input-bound", help="Largest norm of a row that may be sent.", show_default=False),
    ] = None,
    outputs: Annotated[
        int | None,
        typer.Option(
            "--outputs", help="Numbers in an answer, if the target does not tell.", show_default=False
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option("--price-per-1k", help="Price of a thousand queries.", min=0, show_default=False),
    ] = None,
    confirm_above: Annotated[
        int | None,
        typer.Option("--confirm-above", help="Ask before more queries.", min=0, show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; spend what it takes within the budget.")
    ] = False,
    defences: Annotated[
        str,
        typer.Option("--defences", help="Tried on the recovered model: auto (if it is small), all, none."),
    ] = "auto",
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
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="File that keeps every answer (OUT/audit.ledger).", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for report, data, model and ledger.")] = Path(
        "out/audit"
    ),
    as_json: Json = False,
) -> None:
    """Identify TARGET, recover it, prove it, and write a report with what would have stopped it."""
    from unsoftmax.audit.pipeline import audit_target
    from unsoftmax.audit.planning import AuditPlan
    from unsoftmax.audit.report import write_report

    if defences not in ("auto", "all", "none"):
        raise UsageError(f"--defences is auto, all or none, not {defences!r}")
    folder = writable_folder(out)
    place = ledger if ledger is not None else folder / "audit.ledger"

    def tell(plan: AuditPlan) -> None:
        if sys.stderr.isatty():
            with bar_aside():
                say(f"plan        {plan.sentence}")

    def confirm(text: str) -> bool:
        if not sys.stdin.isatty():
            raise UsageError(
                f"{text}: more than the {confirm_above:,} queries allowed without confirmation, and there "
                "is no terminal to ask at; "
                "pass --yes or a larger --confirm-above. What was paid is kept in the ledger"
            )
        with bar_aside():
            return typer.confirm(f"{text}. Go on?", err=True)

    given = {"concurrency": concurrency, "rate": rate, "headers": None if headers is None else str(headers)}
    with (
        show_progress() as progress,
        opened(
            target, outputs, {name: value for name, value in given.items() if value is not None}
        ) as oracle,
    ):
        done = audit_target(
            oracle,
            width=width,
            family=family,
            seed=seed,
            budget=budget,
            ledger=place,
            tolerance=tolerance,
            input_bound=input_bound,
            outputs=outputs,
            price_per_thousand=price,
            confirm_above=None if yes else confirm_above,
            confirm=confirm,
            on_plan=tell,
            progress=progress,
        )
    done = _with_defences(replace(done, target=target), defences, seed)
    artifacts = write_report(done, folder) | {"ledger": str(place)}
    done = replace(done, result=replace(done.result, artifacts=artifacts))
    if as_json:
        from unsoftmax.audit.facts import facts_of

        print_json(facts_of(done))
    else:
        typer.echo(_describe(done))
    raise typer.Exit(RECOVERED if done.result.status.recovered else NOT_RECOVERED)


@contextmanager
def opened(target: str, outputs: int | None, http: dict[str, object]) -> Iterator[Oracle]:
    """The oracle of a target, and its connections closed afterwards."""
    from unsoftmax.recovery.targets import as_oracle

    oracle = as_oracle(target, outputs=outputs, http=http)
    try:
        yield oracle
    finally:
        if callable(close := getattr(oracle, "close", None)):
            close()


def _with_defences(done: Audit, wanted: str, seed: int) -> Audit:
    """Defences tried on the recovered model, never on the target."""
    model = done.result.model
    if (
        wanted == "none"
        or model is None
        or model.outputs is not None
        or (wanted == "auto" and model.parameters > _MOST_FOR_DEFENCES)
    ):
        return done
    from unsoftmax.audit.defend import defend
    from unsoftmax.cli.defend import bar, n_workers

    workers = n_workers() if model.parameters > _WORTH_A_POOL else 1
    with bar() as progress:
        return replace(
            done, defences=defend(model, seed=seed, workers=workers, stand_in=True, progress=progress)
        )


def _describe(done: Audit) -> str:
    from unsoftmax.audit.facts import verdict

    lines = [verdict(done), ""]
    if not done.result.status.recovered:
        lines += [f"{'reason':<16} {done.result.status}: {done.result.reason}", ""]
    lines += [
        f"{finding.subject:<16} {finding.value:<22} {finding.evidence}{_price(finding.queries)}"
        for finding in done.findings
    ]
    if done.defences is not None:
        lines += ["", f"{'defences':<16} {done.defences.advice}"]
    lines += ["", *[f"{name:<16} {path}" for name, path in done.result.artifacts.items()]]
    return "\n".join(lines)


def _price(queries: int) -> str:
    return "" if queries == 0 else " (1 query)" if queries == 1 else f" ({queries:,} queries)"
