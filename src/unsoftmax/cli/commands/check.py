"""`unsoftmax check TARGET`: what it is, what can be recovered, and the next command."""

from __future__ import annotations

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.failures import NOT_RECOVERED
from unsoftmax.cli.options import InputBound, Json, Seed, Servers, Target, Vocabulary, Width
from unsoftmax.cli.output import in_paragraph, print_json
from unsoftmax.cli.reach import opened

__all__ = ["check"]


@command("unsoftmax.recovery.check")
def check(
    target: Target,
    reach: Servers,
    width: Width = None,
    vocabulary: Vocabulary = None,
    input_bound: InputBound = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say what TARGET is, what can be recovered from it, and what to do next: about 60 queries."""
    from unsoftmax.recovery.check import check as look_at

    with opened(target, reach) as oracle:
        found = look_at(
            oracle, width=width, vocabulary=vocabulary, input_bound=input_bound, seed=seed, name=target
        )
    if as_json:
        print_json("check", found.as_json())
    else:
        typer.echo(in_paragraph("looks like", found.looks_like))
        for finding in found.findings:
            typer.echo(f"  {finding.subject:<16}{finding.value}")
        if found.obstacle:
            typer.echo(in_paragraph("in the way", found.obstacle))
        typer.echo(in_paragraph("next", found.advice))
        if found.command:
            typer.echo(f"            {found.command}")
        typer.echo(f"queries     {found.queries:,}")
    raise typer.Exit(0 if found.recoverable else NOT_RECOVERED)
