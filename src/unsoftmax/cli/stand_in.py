"""The model behind a target: its own where the file is at hand, else the one recovered from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unsoftmax.cli.options import Asking, Servers
from unsoftmax.cli.output import say
from unsoftmax.cli.progress import show_progress
from unsoftmax.cli.reach import how_to_go_on, opened
from unsoftmax.errors import NotRecovered, UsageError

if TYPE_CHECKING:
    from unsoftmax.models import Model

__all__ = ["Behind", "holds_model", "model_behind"]


@dataclass(frozen=True)
class Behind:
    """A target's model and how well it is known: relative error of the parameters, error of the constant, and
    whether answers show its scale at all."""

    model: Model
    bound: float = 0.0
    constant_bound: float = 0.0
    free_scale: bool = False


def holds_model(target: str) -> bool:
    """Whether the target's own parameters are at hand, so that no query is needed."""
    return target.startswith("demo:") or target.endswith(".safetensors")


def model_behind(target: str, asking: Asking, ledger: Path | None) -> Behind:
    """The target's own model where its file is at hand, else the one recovered from it."""
    import unsoftmax
    from unsoftmax.answers import Labels
    from unsoftmax.audit.defences.defend import model_of

    if holds_model(target):
        model = model_of(target)
        if asking.width is not None and asking.width != model.width:
            raise UsageError(
                f"width {asking.width} but {target} has width {model.width}; pass width={model.width}"
            )
        return Behind(model)
    place = None if ledger is None else ledger.absolute()
    try:
        with show_progress() as progress, opened(target, Servers(), asking.outputs) as oracle:
            result = unsoftmax.recover(oracle, **asking.arguments(), ledger=place, progress=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how_to_go_on(place)) from None
    if result.model is None:
        raise NotRecovered(
            f"{target} shows its answers only and could not be recovered: {result.reason}", result
        )
    say(f"{target}: the model recovered with {result.queries.total:,} queries stands in for the target")
    labels = isinstance(result.answers, Labels)
    return Behind(result.model, result.error_bound or 0.0, result.constant_bound or 0.0, labels)
