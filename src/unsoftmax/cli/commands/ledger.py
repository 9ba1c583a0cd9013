"""`unsoftmax ledger show PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Json, Price
from unsoftmax.cli.output import print_json

if TYPE_CHECKING:
    from unsoftmax.ledger import Statement

__all__ = ["ledger_app", "show"]

ledger_app = typer.Typer(help="Read the file that --ledger writes.", no_args_is_help=True)


@ledger_app.callback()
def _group() -> None:
    pass


@ledger_app.command()
@command("unsoftmax.ledger")
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The ledger.", show_default=False)],
    price_per_thousand: Price = None,
    as_json: Json = False,
) -> None:
    """Say what was asked, by phase, and what it cost."""
    from unsoftmax.ledger import read_statement

    statement = read_statement(path, price_per_thousand=price_per_thousand)
    if as_json:
        print_json("ledger-show", statement.as_json())
    else:
        typer.echo(_table(statement))


def _table(statement: Statement) -> str:
    lines = [f"{name:<14}{value}" for name, value in statement.binding.items()]
    lines += ["", f"{'phase':<14}{'calls':>8}{'queries':>10}{'retries':>9}  first answer (UTC)   last answer"]
    for phase in statement.phases:
        first, last = (moment[:19].replace("T", " ") for moment in (phase.first, phase.last))
        lines.append(
            f"{phase.phase:<14}{phase.calls:>8,}{phase.queries:>10,}{phase.retries:>9,}  {first}  {last}"
        )
    lines.append(
        f"{'total':<14}{sum(p.calls for p in statement.phases):>8,}"
        f"{statement.queries:>10,}{statement.retries:>9,}"
    )
    lines += ["", f"runs          {statement.runs}"]
    if statement.lost:
        lines.append(
            f"lost          {statement.lost:,} queries were sent, but their answers never arrived or were "
            "not kept; they are asked again"
        )
    if statement.cost is not None:
        lines.append(
            f"cost          {statement.cost:,.2f} at {statement.price_per_thousand:,.2f} a thousand queries"
        )
    return "\n".join(lines)
