"""`unsoftmax audit TARGET`: identify, plan, learn, certify, report."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unsoftmax.cli.command import command, flags_of
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.flags import with_flags
from unsoftmax.cli.options import Asking, Inputs, Json, Price, Servers, Target
from unsoftmax.cli.output import in_paragraph, print_json, say, writable_folder
from unsoftmax.cli.progress import bar_aside, show_progress
from unsoftmax.cli.reach import how_to_go_on, opened
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    from unsoftmax.audit.pipeline import Audit
    from unsoftmax.audit.policy import Policy
    from unsoftmax.oracles import Oracle

__all__ = ["audit"]

_LONGEST = 60  # characters of a target's name in the name of a folder
_WORTH_A_POOL = 200  # parameters from which starting processes pays
_MOST_FOR_DEFENCES = 3_000  # parameters of a model whose defences are tried unasked


@dataclass(frozen=True)
class _Spending:
    """What may be spent, and what is tried afterwards."""

    price_per_thousand: Price = None
    confirm_above: Annotated[
        int | None,
        typer.Option("--confirm-above", help="Ask before more queries than this.", min=0, show_default=False),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before spending; --budget still holds.")] = (
        False
    )
    currency: Annotated[
        str | None, typer.Option("--currency", help="What prices are in, such as EUR.", show_default=False)
    ] = None
    fail_on: Annotated[
        Literal["recovered", "leak"] | None,
        typer.Option(
            "--fail-on",
            help="For pipelines: exit 1 if the whole model was recovered, or if any part leaked; else 0.",
            show_default=False,
        ),
    ] = None
    max_price: Annotated[
        float | None,
        typer.Option(
            "--max-price",
            help="With --fail-on: spend no more than this; a leak that costs more does not count.",
            min=0.0,
            show_default=False,
        ),
    ] = None
    defences: Annotated[
        Literal["auto", "all", "none"],
        typer.Option("--defences", help="Try defences on the recovered model; auto: if it is small."),
    ] = "auto"

    def policy(self) -> Policy | None:
        """What fails a pipeline, if anything does."""
        from unsoftmax.audit.policy import Policy

        if self.fail_on is None and self.max_price is not None:
            raise UsageError("max_price says what counts as a failure; pass fail_on=recovered as well")
        return None if self.fail_on is None else Policy(self.fail_on, self.max_price)

    def budget(self, told: int | None) -> int | None:
        """The most queries: those told, and those that the largest price buys."""
        policy = self.policy()
        bought = None if policy is None else policy.budget(self.price_per_thousand)
        return min((each for each in (told, bought) if each is not None), default=None)

    def confirmed(self, text: str) -> bool:
        """Asks the user, or raises `UsageError` where nobody can be asked."""
        if not sys.stdin.isatty():
            raise UsageError(
                f"{text}: more than the {self.confirm_above:,} queries allowed without confirmation, and "
                "there is no terminal to ask at; pass --yes or a larger --confirm-above. What was paid is "
                "kept in the ledger"
            )
        with bar_aside():
            return typer.confirm(f"{text}. Go on?", err=True)


@command("unsoftmax.audit.pipeline", "unsoftmax.audit.policy", "unsoftmax.audit.report")
def audit(
    target: Target,
    asking: Asking,
    servers: Servers,
    spending: _Spending,
    inputs: Inputs,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            help="File that keeps every answer. Default: audit.ledger in --out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for report, data, model and ledger. Default: one in out/audit for each target and "
            "its options.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Identify TARGET, recover it, prove it, and write a report with what would have stopped it."""
    from unsoftmax.audit.facts import facts_of
    from unsoftmax.audit.report import write_report

    here = Path.cwd()  # the target's code may change it
    asking = replace(asking, budget=spending.budget(asking.budget))
    folder = None if out is None else writable_folder(out)
    with opened(target, servers, asking.outputs) as oracle:
        folder = folder if folder is not None else _usual_folder(target, oracle, asking, inputs)
        writable_folder(here / folder)
        place = here / (ledger if ledger is not None else folder / "audit.ledger")
        try:
            done = _audited(oracle, asking, spending, inputs, place)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(how_to_go_on(place)) from None
    done = _with_defences(replace(done, target=target), spending.defences, asking.seed)
    kept = str(ledger if ledger is not None else folder / "audit.ledger")
    flags = flags_of(audit)
    artifacts = write_report(done, folder, lambda text: with_flags(text, flags)) | {"ledger": kept}
    done = replace(done, result=replace(done.result, artifacts=artifacts))
    policy = spending.policy()
    judged = None if policy is None else policy.judge(done)
    if as_json:
        print_json("audit", facts_of(done) | {"policy": None if judged is None else judged.as_json()})
    else:
        text = _describe(done) + ("" if judged is None else f"\n{'policy':<16} {judged.sentence}")
        typer.echo(with_flags(text, flags))
    if judged is not None:
        raise typer.Exit(1 if judged.violated else 0)
    raise typer.Exit(RECOVERED if done.result.status.recovered else NOT_RECOVERED)


def _audited(oracle: Oracle, asking: Asking, spending: _Spending, inputs: Inputs, ledger: Path) -> Audit:
    from unsoftmax.audit.pipeline import audit_target
    from unsoftmax.audit.planning import AuditPlan

    def tell(plan: AuditPlan) -> None:
        if sys.stderr.isatty():
            with bar_aside():
                say(f"plan        {plan.sentence}")

    with show_progress() as progress:
        return audit_target(
            oracle,
            **asking.arguments(),
            **inputs.inputs(),
            ledger=ledger,
            price_per_thousand=spending.price_per_thousand,
            currency=spending.currency,
            confirm_above=None if spending.yes else spending.confirm_above,
            confirm=spending.confirmed,
            on_plan=tell,
            progress=progress,
        )


def _usual_folder(target: str, oracle: Oracle, asking: Asking, inputs: Inputs) -> Path:
    """A folder for this target, as it is now, and these options: a ledger belongs to one of each.

    The budget is left out, so that a run may go on with a larger one.
    """
    from unsoftmax.oracles import identity

    name = re.sub(r"[^A-Za-z0-9]+", "-", target.rpartition("/")[2].removeprefix("demo:")).strip("-")[
        :_LONGEST
    ]
    told = asking.arguments() | inputs.inputs() | {"budget": None}
    facts = repr((identity(oracle), sorted((name, str(value)) for name, value in told.items())))
    return Path("out/audit") / f"{name or 'target'}-{blake2b(facts.encode(), digest_size=3).hexdigest()}"


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
    from unsoftmax.audit.defences.defend import defend
    from unsoftmax.cli.commands.defend import bar, n_workers

    workers = n_workers() if model.parameters > _WORTH_A_POOL else 1
    with bar() as progress:
        return replace(
            done, defences=defend(model, seed=seed, workers=workers, stand_in=True, progress=progress)
        )


def _describe(done: Audit) -> str:
    from unsoftmax.audit.facts import verdict

    lines = [in_paragraph("", verdict(done), indent=0), ""]
    if not done.result.status.recovered:
        lines += [in_paragraph("reason", f"{done.result.status}: {done.result.reason}", indent=17), ""]
        lines += [in_paragraph("try", done.result.advice, indent=17), ""]
    lines += [
        in_paragraph(
            f"{finding.subject:<16} {finding.value:<22}",
            f"{finding.evidence}{_price(finding.queries)}",
            indent=40,
        )
        for finding in done.findings
    ]
    if done.defences is not None:
        lines += ["", in_paragraph("defences", done.defences.advice, indent=17)]
    lines += ["", *[f"{name:<16} {path}" for name, path in done.result.artifacts.items()]]
    return "\n".join(lines)


def _price(queries: int) -> str:
    return "" if queries == 0 else " (1 query)" if queries == 1 else f" ({queries:,} queries)"
