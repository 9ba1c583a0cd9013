"""`unsoftmax plan TARGET`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Budget, Json, Seed, Shape, Target, Vocabulary
from unsoftmax.cli.output import in_paragraph, print_json
from unsoftmax.cli.stand_in import holds_model
from unsoftmax.families import Family

if TYPE_CHECKING:
    from unsoftmax.recovery.plan import Cost

__all__ = ["plan"]


Arithmetic = Literal["float64", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class _Size:
    """The size of a target, when it is known."""

    heads: Annotated[
        int | None, typer.Option("--heads", help="Number of heads, if known.", min=1, show_default=False)
    ] = None
    rank: Annotated[
        int | None,
        typer.Option("--rank", help="Rank of W of each head, if known.", min=0, show_default=False),
    ] = None
    neurons: Annotated[int, typer.Option("--neurons", help="Neurons of the network, if known.", min=0)] = 0
    biases: Annotated[
        bool, typer.Option("--biases", help="The model has biases; goes with --heads, --rank or --neurons.")
    ] = False


@command("unsoftmax.recovery.plan")
def plan(
    target: Target,
    shape: Shape,
    known: _Size,
    arithmetic: Annotated[
        Arithmetic | None,
        typer.Option(
            "--arithmetic",
            help="Format in which the target computes: float64, float32, bfloat16 or float16. Default: what "
            "the target tells.",
            show_default=False,
        ),
    ] = None,
    vocabulary: Vocabulary = None,
    seed: Seed = 0,
    budget: Budget = None,
    out: Annotated[Path | None, typer.Option("--out", hidden=True)] = None,
    as_json: Json = False,
) -> None:
    """Say what recovering TARGET costs, before the first query."""
    from unsoftmax.learners import Size
    from unsoftmax.oracles import check_width
    from unsoftmax.recovery.inputs.targets import as_oracle
    from unsoftmax.recovery.plan import plan as make_plan

    size = None
    if known.heads is not None or known.rank is not None or known.neurons:
        told = shape.width if vocabulary is None else vocabulary
        d = check_width(told if told is not None else as_oracle(target).spec.width)
        each = (
            known.rank if known.rank is not None else d if known.heads is None else max(1, d // known.heads)
        )
        size = Size(d, (each,) * (known.heads or 1), known.neurons, biased=known.biases)
    planned = make_plan(
        target,
        width=shape.width,
        family=shape.family,
        outputs=shape.outputs,
        size=size,
        vocabulary=vocabulary,
        arithmetic=arithmetic,
    )
    mine = _of_this_target(target, arithmetic) if size is None and shape == Shape() else None
    affordable = [cost for cost in planned.costs if budget is not None and cost.total <= budget]
    if as_json:
        ranks = max((cost.size.rank for cost in affordable), default=0)
        within = None if budget is None else ranks
        own = None if mine is None else mine[1].as_json() | {"family": mine[0]}
        facts = {"this_target": own, "budget": budget, "rank_within_budget": within}
        print_json("plan", planned.as_json() | facts)
        return
    if mine is not None:
        family, cost = mine
        text = (
            f"{family}, {_words(cost)}, {cost.parameters:,} parameters: usually {cost.total:,} queries, "
            f"{cost.verification:,} of them for verification. The table below is for a target of this width "
            "whose rank is not known"
        )
        typer.echo(in_paragraph("this target", text) + "\n")
    of_tokens = planned.family == Family.TOKENS
    symbol = "V" if of_tokens else "d"
    typer.echo(in_paragraph("learner", f"{planned.claim.title} ({planned.claim.source})"))
    typer.echo(in_paragraph("queries", f"{planned.claim.queries.formula}; {symbol} = {planned.width}"))
    typer.echo(f"{'':<24}{'parameters':>12}{'usually':>12}{'verification':>14}{'at most':>12}")
    for cost in planned.costs:
        typer.echo(
            f"{_words(cost):<24}{cost.parameters:>12,}{cost.queries:>12,}{cost.verification:>14,}"
            f"{cost.one_attempt:>12,}"
        )
    if (attempts := planned.claim.queries.attempts) > 1:
        typer.echo(f"attempts    one usually, {attempts} at most, each up to the last column")
    every = "Theorem 4.1, d + d^2, whatever the rank, no biases"
    every = "every token and every pair, V + V^2" if of_tokens else every
    typer.echo(f"{'all pairs' if of_tokens else 'paper':<12}{planned.paper:,} ({every})")
    for name, formula in planned.otherwise.items():
        typer.echo(in_paragraph(name, f"if the target turns out to be of this kind: {formula}"))
    if budget is not None:
        enough = f"usually enough up to {_words(affordable[-1])}" if affordable else "not enough for any size"
        typer.echo(f"budget      {budget:,} queries are {enough}, verification included")


def _of_this_target(target: str, arithmetic: str | None) -> tuple[str, Cost] | None:
    """Family and cost of a target whose model is at hand; None for one that only answers."""
    from unsoftmax.audit.defences.defend import model_of
    from unsoftmax.errors import UnsoftmaxError
    from unsoftmax.learners import Size
    from unsoftmax.outcomes import Stop
    from unsoftmax.recovery.plan import plan as make_plan

    if not holds_model(target):
        return None
    try:
        model = model_of(target)
        (cost,) = make_plan(target, family=model.family, size=Size.of(model), arithmetic=arithmetic).costs
    except (UnsoftmaxError, Stop):  # a family whose size is told in another way
        return None
    return model.family, cost


def _words(cost: Cost) -> str:
    """A size for people."""
    size = cost.size
    rank = f"rank {size.rank}"
    if size.neurons:
        return f"{size.neurons} neurons" + (f", {rank}" if size.ranks else "")
    return rank if size.heads <= 1 else f"{size.heads} heads, {rank}"
