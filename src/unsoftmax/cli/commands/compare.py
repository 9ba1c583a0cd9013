"""`unsoftmax compare A B`: are two models one function?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.failures import NOT_RECOVERED, RECOVERED
from unsoftmax.cli.options import Asking, Json, LedgerPath
from unsoftmax.cli.output import in_paragraph, print_json, say, writable_folder
from unsoftmax.cli.stand_in import model_behind

if TYPE_CHECKING:
    from unsoftmax.cli.stand_in import Behind
    from unsoftmax.models import Model

__all__ = ["compare"]

_HELP = "demo:..., a .safetensors file, or any target of recover, which is then recovered first."
_First = Annotated[str, typer.Argument(metavar="FIRST", help=_HELP, show_default=False)]
_Second = Annotated[str, typer.Argument(metavar="SECOND", help=_HELP, show_default=False)]


@command("unsoftmax.audit.compare")
def compare(
    first: _First,
    second: _Second,
    asking: Asking,
    rtol: Annotated[
        float, typer.Option("--rtol", help="Relative difference of parameters that counts as none.", min=0)
    ] = 1e-12,
    ledger: LedgerPath = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for separating.npy, the input that tells them apart.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether two models are one function, and if not, on which input they differ (exit status 1)."""
    import numpy as np

    from unsoftmax.audit.compare import compare_models

    folder = None if out is None else writable_folder(out)
    sides: list[Behind] = []
    for index, target in enumerate((first, second), 1):
        # a ledger belongs to one target
        place = None if ledger is None else ledger.with_name(f"{ledger.name}-{index}")
        sides.append(model_behind(target, asking, place))
        rtol = max(rtol, 2.0 * sides[-1].bound)  # what was recovered is compared as well as it is known
    done = compare_models(*_as_far_as_known(*sides), rtol=rtol, seed=asking.seed)
    content = done.as_json()
    if folder is not None and done.separating is not None:
        np.save(folder / "separating.npy", done.separating)
        content["artifacts"] = {"separating": str(folder / "separating.npy")}
    if as_json:
        print_json("compare", content)
    else:
        typer.echo(in_paragraph("", done.sentence, indent=0))
        if done.separating is not None:
            typer.echo(
                np.array2string(
                    done.separating, precision=17, floatmode="unique", threshold=400, max_line_width=120
                )
            )
        for name, path in content.get("artifacts", {}).items():
            typer.echo(f"{name:<11} {path}")
    raise typer.Exit(RECOVERED if done.same else NOT_RECOVERED)


def _as_far_as_known(first: Behind, second: Behind) -> tuple[Model, Model]:
    """Both on one scale where labels do not show it, and with one constant where errors of answers hide the
    difference."""
    import numpy as np

    from unsoftmax.models import SingleHead

    one, two = first.model, second.model
    free, hidden = first.free_scale or second.free_scale, first.constant_bound + second.constant_bound
    if not free and not hidden:
        return one, two
    if not isinstance(one, SingleHead) or not isinstance(two, SingleHead):
        return one, two  # only one head is ever known so little; another family is another function
    if free:
        say("labels do not show the scale of answers: both are compared with v of length 1")
        sizes = [float(np.linalg.norm(head.v)) or 1.0 for head in (one, two)]
        one, two = (
            SingleHead(head.matrix, head.v / size, head.w0, head.c / size)
            for head, size in zip((one, two), sizes, strict=True)
        )
    if 0.0 < abs(float(one.c) - float(two.c)) <= hidden:
        say(f"the constants agree as well as they are known, to {hidden:.2g}")
        two = SingleHead(two.matrix, two.v, two.w0, one.c)
    return one, two
