"""`unsoftmax plan TARGET`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.common import Budget, Json, Out, Seed, Target, Width, print_json, reports_errors

if TYPE_CHECKING:
    from unsoftmax.recovery.plan import Cost

__all__ = ["plan"]


@reports_errors
def plan(
    target: Target,
    width: Width = None,
    family: Annotated[str, typer.Option("--family", help="auto, or the family when it is known.")] = "auto",
    heads: Annotated[int | None, typer.Option("--heads", help="Number of heads, when it is known.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Rank of W of each head, when known.")] = None,
    neurons: Annotated[int, typer.Option("--neurons", help="Neurons of the network, when known.")] = 0,
    biases: Annotated[bool, typer.Option("--biases", help="With --heads, --rank or --neurons.")] = False,
    outputs: Annotated[
        int | None, typer.Option("--outputs", help="Numbers in an answer, if the target does not report it.")
    ] = None,
    seed: Seed = 0,
    budget: Budget = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Say what recovering TARGET costs, before the first query."""
    from unsoftmax.learners import Size
    from unsoftmax.oracles import check_width
    from unsoftmax.recovery.plan import plan as make_plan
    from unsoftmax.recovery.targets import as_oracle

    size = None
    if heads is not None or rank is not None or neurons:
        d = check_width(width if width is not None else as_oracle(target).spec.width)
        each = rank if rank is not None else d if heads is None else max(1, d // heads)
        size = Size(d, (each,) * (1 if heads is None else heads), neurons, biased=biases)
    planned = make_plan(target, width=width, family=family, outputs=outputs, size=size)
    affordable = [cost for cost in planned.costs if budget is not None and cost.total <= budget]
    if as_json:
        ranks = max((cost.size.rank for cost in affordable), default=0)
        within = None if budget is None else ranks
        print_json(planned.as_json() | {"budget": budget, "rank_within_budget": within})
        return
    typer.echo(f"{planned.claim.title} ({planned.claim.source})")
    typer.echo(f"queries     {planned.claim.queries.formula}; d = {planned.width}")
    typer.echo(f"{'':<24}{'parameters':>12}{'usually':>12}{'verification':>14}{'at most':>12}")
    for cost in planned.costs:
        typer.echo(
            f"{_words(cost):<24}{cost.parameters:>12,}{cost.queries:>12,}{cost.verification:>14,}"
            f"{cost.one_attempt:>12,}"
        )
    if (attempts := planned.claim.queries.attempts) > 1:
        typer.echo(f"attempts    one usually, {attempts} at most, each up to the last column")
    typer.echo(f"paper       {planned.paper:,} (Theorem 4.1, d + d^2, whatever the rank, no biases)")
    for name, formula in planned.otherwise.items():
        typer.echo(f"{name:<11} {formula}, should it turn out to be one")
    if budget is not None:
        enough = f"are usually enough up to {_words(affordable[-1])}" if affordable else "are not enough"
        typer.echo(f"budget      {budget:,} queries {enough}")


def _words(cost: Cost) -> str:
    """A size for people."""
    size = cost.size
    rank = f"rank {size.rank}"
    if size.neurons:
        return f"{size.neurons} neurons" + (f", {rank}" if size.ranks else "")
    return rank if size.heads <= 1 else f"{size.heads} heads, {rank}"
