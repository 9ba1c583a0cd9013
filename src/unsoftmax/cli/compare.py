"""`unsoftmax compare A B`: are two models one function?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli.common import NOT_RECOVERED, RECOVERED, Json, Seed, print_json, reports_errors, writable_folder

__all__ = ["compare"]

Side = Annotated[str, typer.Argument(help="demo:... or a .safetensors file", show_default=False)]


@reports_errors
def compare(
    first: Side,
    second: Side,
    rtol: Annotated[float, typer.Option("--rtol", help="Relative difference of parameters that counts as none.", min=0)] = 1e-12,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for separating.npy, the input that tells them apart.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Say whether two models are one function; if not, print an input on which they differ. Exit status: 0 same, 1 different."""
    import numpy as np

    from unsoftmax.audit.comparison import compare_models
    from unsoftmax.audit.defend import model_of

    folder = None if out is None else writable_folder(out)
    done = compare_models(model_of(first), model_of(second), rtol=rtol, seed=seed)
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
