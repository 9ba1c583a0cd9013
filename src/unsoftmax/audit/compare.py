"""Are two models one function? Canonical forms decide; a separating input is found, asked again, and
shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models import Model, equivalent

__all__ = ["Comparison", "compare_models"]


@dataclass(frozen=True)
class Comparison:
    """The answer, and its evidence. gap: difference on the separating input; rounding: what float64 could
    explain of it at most."""

    same: bool
    distance: float
    reason: str
    families: tuple[str, str]
    separating: Array | None = None
    answers: tuple[list[float], list[float]] | None = None
    gap: float | None = None
    rounding: float | None = None

    @property
    def sentence(self) -> str:
        """For people."""
        if self.same:
            return f"Same function: {self.reason} (distance {self.distance:.1e})."
        told = (
            ""
            if self.answers is None
            else f" One answers {_text(self.answers[0])}, the other {_text(self.answers[1])}"
        )
        proof = (
            ""
            if self.gap is None
            else f": {self.gap:.3g} apart, where rounding explains at most {self.rounding:.1g}."
        )
        return (
            f"Different functions: {self.reason} (distance of the parameters "
            f"{self.distance:.1e}).{told}{proof}"
        )

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "same": self.same,
            "distance": self.distance,
            "reason": self.reason,
            "families": list(self.families),
            "separating": None if self.separating is None else self.separating.tolist(),
            "answers": None if self.answers is None else [list(answer) for answer in self.answers],
            "gap": self.gap,
            "rounding": self.rounding,
        }


def compare_models(first: Model, second: Model, *, rtol: float = 1e-12, seed: int = 0) -> Comparison:
    """Compares two models up to the symmetries of their functions: order, merging and heads without effect,
    factors of W, families.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(4, seed=0)
    >>> compare_models(head, unsoftmax.MultiHead([head])).same
    True
    """
    if first.width != second.width:
        raise UsageError(
            f"models of width {first.width} and {second.width} take different sequences; compare two of one "
            "width"
        )
    families = (first.family, second.family)
    found = equivalent(first, second, rtol=rtol, seed=seed)
    if found.equal:
        return Comparison(True, found.distance, found.reason, families)
    assert found.separating is not None
    answers, gap, rounding = _ask_again(first, second, found.separating)
    return Comparison(False, found.distance, found.reason, families, found.separating, answers, gap, rounding)


def _ask_again(
    first: Model, second: Model, sequence: Array
) -> tuple[tuple[list[float], list[float]], float, float]:
    """The separating input once more, alone and among others: the smaller gap counts."""
    alone = sequence[None]
    others = (alone, alone) if sequence.ndim == 1 else (0.5 * alone, -alone)  # ids are not numbers
    crowd = np.concatenate([others[0], alone, others[1]])
    gaps = [
        float(np.abs(first(alone)[0] - second(alone)[0]).max()),
        float(np.abs(first(crowd)[1] - second(crowd)[1]).max()),
    ]
    rounding = 2.0 * float(max(first.rounding(alone)[0], second.rounding(alone)[0]))
    answers = tuple([float(value) for value in np.ravel(model(alone)[0])] for model in (first, second))
    return (answers[0], answers[1]), min(gaps), rounding


def _text(answer: list[float]) -> str:
    return f"{answer[0]:.17g}" if len(answer) == 1 else f"[{answer[0]:.17g}, ...]"
