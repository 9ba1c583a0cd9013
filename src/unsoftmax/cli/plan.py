"""`unsoftmax plan TARGET`."""

from __future__ import annotations

from typing import Annotated

import typer

from unsoftmax.cli.common import Budget, Json, Out, Seed, Target, Width, print_json, reports_errors

__all__ = ["plan"]


@reports_errors
def plan(
    target: Target,
    width: Width = None,
    family: Annotated[str, typer.Option("--family", help="auto, or the family when it is known.")] = "auto",
    seed: Seed = 0,
    budget: Budget = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Say what recovering TARGET costs, before the first query."""
    from unsoftmax.recovery.plan import plan as make_plan

    planned = make_plan(target, width=width, family=family)
    affordable = (
        None
        if budget is None
        else max((r for r, n in planned.by_rank.items() if n + planned.verification <= budget), default=0)
    )
    if as_json:
        print_json(planned.as_json() | {"budget": budget, "rank_within_budget": affordable})
        return
    typer.echo(f"{planned.claim.title} ({planned.claim.source})")
    typer.echo(
        f"queries     {planned.claim.queries.formula}, d = {planned.width}; verification "
        f"{planned.verification} at most"
    )
    typer.echo(f"{'rank':>8}{'parameters':>14}{'queries':>12}")
    for rank, queries in planned.by_rank.items():
        typer.echo(f"{rank:>8}{planned.parameters[rank]:>14,}{queries:>12,}")
    typer.echo(f"paper       {planned.paper:,} (Theorem 4.1, d + d^2, whatever the rank, no biases)")
    for name, formula in planned.otherwise.items():
        typer.echo(f"{name:<11} {formula}, should it turn out to be one")
    if affordable is not None:
        typer.echo(
            f"budget      {budget:,} queries are enough up to rank {affordable}"
            if affordable
            else f"budget      {budget:,} queries are not enough"
        )
