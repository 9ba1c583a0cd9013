"""`unsoftmax compare A B`: are two models one function?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.common import NOT_RECOVERED, RECOVERED, Budget, Json, LedgerPath, Seed, Width, print_json, reports_errors, writable_folder

if TYPE_CHECKING:
    from unsoftmax.models import Model

__all__ = ["compare"]

Side = Annotated[
    str, typer.Argument(help="demo:..., a .safetensors file, or any target of recover, which is then recovered first", show_default=False)
]


@reports_errors
def compare(
    first: Side,
    second: Side,
    rtol: Annotated[float, typer.Option("--rtol", help="Relative difference of parameters that counts as none.", min=0)] = 1e-12,
    width: Width = None,
    seed: Seed = 0,
    budget: Budget = None,
    ledger: LedgerPath = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for separating.npy, the input that tells them apart.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Say whether two models are one function; if not, print an input on which they differ. Exit status: 0 same, 1 different."""
    import numpy as np

    from unsoftmax.audit.comparison import compare_models
    from unsoftmax.cli.defend import model_behind

    folder = None if out is None else writable_folder(out)
    sides: list[Model] = []
    for index, target in enumerate((first, second), 1):
        place = None if ledger is None else ledger.with_name(f"{ledger.name}-{index}")  # a ledger belongs to one target
        model, bound = model_behind(target, width, seed, budget, place)
        sides.append(model)
        rtol = max(rtol, 2.0 * bound)  # what was recovered is compared as well as it is known
    done = compare_models(sides[0], sides[1], rtol=rtol, seed=seed)
    content = done.as_json()
    if folder is not None and done.separating is not None:
        np.save(folder / "separating.npy", done.separating)
        content["artifacts"] = {"separating": str(folder / "separating.npy")}
    if as_json:
        print_json(content)
    else:
        typer.echo(done.sentence)
        if done.separating is not None:
            typer.echo(np.array2string(done.separating, precision=17, floatmode="unique", threshold=400, max_line_width=120))
        for name, path in content.get("artifacts", {}).items():
            typer.echo(f"{name:<11} {path}")
    raise typer.Exit(RECOVERED if done.same else NOT_RECOVERED)
