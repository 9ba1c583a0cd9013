"""`unsoftmax plan TARGET`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Budget, Json, Seed, Shape, Target
from unsoftmax.cli.output import print_json

if TYPE_CHECKING:
    from unsoftmax.recovery.plan import Cost

__all__ = ["plan"]


@dataclass(frozen=True)
class _Size:
    """The size of a target, when it is known."""

    heads: Annotated[
        int | None,
        typer.Option("--heads", help="Number of heads, when it is known.", min=1, show_default=False),
    ] = None
    rank: Annotated[
        int | None,
        typer.Option("--rank", help="Rank of W of each head, when known.", min=0, show_default=False),
    ] = None
    neurons: Annotated[int, typer.Option("--neurons", help="Neurons of the network, when known.", min=0)] = 0
    biases: Annotated[bool, typer.Option("--biases", help="With --heads, --rank or --neurons.")] = False


@command("unsoftmax.recovery.plan")
def plan(
    target: Target,
    shape: Shape,
    known: _Size,
    seed: Seed = 0,
    budget: Budget = None,
    out: Annotated[Path | None, typer.Option("--out", hidden=True)] = None,
    as_json: Json = False,
) -> None:
    """Say what recovering TARGET costs, before the first query."""
    from unsoftmax.learners import Size
    from unsoftmax.oracles import check_width
    from unsoftmax.recovery.plan import plan as make_plan
    from unsoftmax.recovery.targets import as_oracle

    size = None
    if known.heads is not None or known.rank is not None or known.neurons:
        d = check_width(shape.width if shape.width is not None else as_oracle(target).spec.width)
        each = (
            known.rank if known.rank is not None else d if known.heads is None else max(1, d // known.heads)
        )
        size = Size(d, (each,) * (known.heads or 1), known.neurons, biased=known.biases)
    planned = make_plan(target, width=shape.width, family=shape.family, outputs=shape.outputs, size=size)
    affordable = [cost for cost in planned.costs if budget is not None and cost.total <= budget]
    if as_json:
        ranks = max((cost.size.rank for cost in affordable), default=0)
        within = None if budget is None else ranks
        print_json("plan", planned.as_json() | {"budget": budget, "rank_within_budget": within})
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
