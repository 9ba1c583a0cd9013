"""`unsoftmax check TARGET`: what it is, what can be recovered, and the next command."""

from __future__ import annotations

import typer

from unsoftmax.cli.command import command, flags_of
from unsoftmax.cli.commands.recover import recover
from unsoftmax.cli.failures import NOT_RECOVERED, ORACLE_FAILED, RECOVERED
from unsoftmax.cli.flags import with_flags
from unsoftmax.cli.options import InputBound, Json, Longest, Seed, Servers, Target, Vocabulary, Width
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
    longest: Longest = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say what TARGET is, what can be recovered from it, and what to do next: about 60 queries."""
    from unsoftmax.recovery.check import check as look_at

    with opened(target, reach) as oracle:
        found = look_at(
            oracle,
            width=width,
            vocabulary=vocabulary,
            input_bound=input_bound,
            longest=longest,
            seed=seed,
            name=target,
        )
    flags = flags_of(recover)  # what is said is about the next command
    if as_json:
        print_json("check", found.as_json())
    else:
        typer.echo(in_paragraph("looks like", found.looks_like))
        column = max((len(finding.subject) for finding in found.findings), default=0) + 2
        for finding in found.findings:
            typer.echo(f"  {finding.subject:<{column}}{finding.value}")
        if found.obstacle:
            typer.echo(in_paragraph("in the way", with_flags(found.obstacle, flags)))
        if found.advice:
            typer.echo(in_paragraph("next", with_flags(found.advice, flags)))
        if found.command:
            typer.echo(f"            {found.command}")
        typer.echo(f"queries     {found.queries:,}")
    silent = not found.recoverable and found.ending is None
    raise typer.Exit(ORACLE_FAILED if silent else RECOVERED if found.recoverable else NOT_RECOVERED)
