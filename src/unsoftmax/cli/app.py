"""The `unsoftmax` command."""

from __future__ import annotations

from typing import Annotated

import typer

from unsoftmax import __version__
from unsoftmax.cli.audit import audit
from unsoftmax.cli.compare import compare
from unsoftmax.cli.defend import defend
from unsoftmax.cli.demo import demo
from unsoftmax.cli.ledger import ledger_app
from unsoftmax.cli.plan import plan
from unsoftmax.cli.recover import recover
from unsoftmax.cli.reproduce import reproduce
from unsoftmax.cli.serve import serve
from unsoftmax.cli.sweep import sweep

__all__ = ["app", "main"]

app = typer.Typer(
    help=(
        "Recover the parameters of attention models from black-box queries, with a certificate and the bill."
    ),
    epilog=(
        "Exit status: 0 recovered and certified; 1 any other outcome; 2 wrong usage or input; 3 the oracle "
        "failed."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _command in (recover, plan, audit, defend, compare, serve, demo, sweep, reproduce):
    app.command()(_command)
app.add_typer(ledger_app, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unsoftmax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the installed command."""
    app()
