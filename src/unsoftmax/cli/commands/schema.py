"""`unsoftmax schema COMMAND`: the JSON Schema of what a command prints with --json."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Json

__all__ = ["schema"]

_Command = Literal[
    "recover",
    "demo",
    "audit",
    "check",
    "plan",
    "defend",
    "compare",
    "serve",
    "reproduce",
    "sweep",
    "sweep-plot",
    "ledger-show",
    "error",
]


@command("unsoftmax.schemas")
def schema(
    name: Annotated[_Command, typer.Argument(metavar="COMMAND", help="Whose output.", show_default=False)],
    as_json: Json = True,  # it prints nothing else
) -> None:
    """Print the JSON Schema of what COMMAND prints with --json ('error': what all print on failure)."""
    from unsoftmax.schemas import schema_of

    typer.echo(json.dumps(schema_of(name), indent=2))
