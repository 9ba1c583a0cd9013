"""What `defend` found: a table of defences, and one sentence of advice from its figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unsoftmax.audit.defences.wrappers import DefenceKind
from unsoftmax.html_tables import facts_table, table

__all__ = ["DefenceRow", "Defences"]

_HARMLESS = 0.01  # what honest users may lose: relative distortion, and share of sequences refused
_SAFE = 0.1  # a relative error of the parameters from which nothing useful has leaked
_NOTHING = 1e-9  # a relative error of the parameters that bothers no attacker


@dataclass(frozen=True)
class DefenceRow:
    """One defence: how the attack ended, and what honest users pay.

    parameter_error: relative, against the defended model (direction of v only, for labels); functional_error:
    on honest sequences, relative. Both are None where nothing was recovered. attacked: False where this
    library has no attack for such answers of such a model; then nothing recovered is not evidence of safety.
    adapted: what the attack changed to get past a detector; its queries count all that it sent.
    """

    label: str
    parts: tuple[tuple[str, float | str], ...]
    status: str
    reason: str
    queries: int
    parameter_error: float | None
    functional_error: float | None
    error_bound: float | None
    distortion: float
    refused: float
    seconds: float
    attacked: bool = True
    adapted: str = ""

    @property
    def leak(self) -> float:
        """What the attacker is off by; 1 where nothing was recovered."""
        return 1.0 if self.parameter_error is None else min(1.0, self.parameter_error)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of defence in it."""
        return tuple(kind for kind, _ in self.parts)


@dataclass(frozen=True)
class Defences:
    """The table, from no defence on. `stand_in`: whether the recovered model was attacked in place of the
    target. said: the advice, where it does not follow from errors of all parameters."""

    rows: tuple[DefenceRow, ...]
    parameters: int
    honest: str
    stand_in: bool
    seed: int
    said: str = ""

    @property
    def ranked(self) -> list[DefenceRow]:
        """Harmless ones first, then by what they keep from the attacker, then by what users pay; those that
        nobody attacked last."""
        return sorted(
            self.rows,
            key=lambda row: (
                not row.attacked,
                not _harmless(row),
                -row.leak,
                row.distortion + row.refused,
                len(row.parts),
            ),
        )

    @property
    def advice(self) -> str:
        """One sentence, derived from the figures."""
        return self.said or _advice(self)

    def _repr_html_(self) -> str:
        """The table and the advice, for notebooks."""
        rows = [
            (row.label, row.status, f"{row.queries:,}", f"{row.leak:.1e}", f"{row.distortion:.1e}")
            for row in self.ranked
        ]
        header = ["defence", "attack ends", "queries", "error of the attacker", "honest answers move by"]
        return facts_table("unsoftmax.Defences", [("advice", self.advice)]) + table(header, rows)

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        rows = [
            asdict(row) | {"parts": [{"kind": kind, "value": value} for kind, value in row.parts]}
            for row in self.rows
        ]
        return {
            "advice": self.advice,
            "parameters": self.parameters,
            "honest": self.honest,
            "stand_in": self.stand_in,
            "seed": self.seed,
            "rows": rows,
        }


def _advice(table: Defences) -> str:
    rows = [row for row in table.rows if row.parts and row.attacked and DefenceKind.BUDGET not in row.kinds]
    harmless = [row for row in rows if _harmless(row)]
    budget = _about_budgets(table)
    if not rows:
        tried = any(row.attacked for row in table.rows)
        what = "No change of answers or inputs was" if tried else "None of these defences could be"
        return f"{what} tested on this model. {budget}."
    if not harmless:
        return f"No defence tried keeps honest answers within {_HARMLESS:.0%}. {budget}."
    best = max(harmless, key=lambda row: (row.leak, -row.distortion - row.refused, -len(row.parts)))
    price = (
        f"it moves honest answers by {100 * best.distortion:.2g}%" + _refusing(best)
        if best.distortion + best.refused
        else "it costs honest users nothing"
    )
    stopped = [row for row in rows if row.leak >= _SAFE]
    if best.leak >= _SAFE:
        left = (
            "recovers no model that it can certify"
            if best.parameter_error is None
            else "recovers nothing useful"
        )
        return f"Use '{best.label}': {price}, and this attack then {left}. {budget}."
    if best.leak < _NOTHING and not stopped:
        return f"No tested change of answers or inputs kept anything from this attack. {budget}."
    text = (
        f"No change of answers or inputs that keeps honest answers within {_HARMLESS:.0%} stopped this "
        f"attack. The strongest is '{best.label}': {price}, and leaves the attacker a relative error of "
        f"{best.leak:.1g} after {best.queries:,} queries"
    )
    if stopped:
        cheapest = min(stopped, key=lambda row: row.distortion + row.refused)
        text += f". '{cheapest.label}' stops it, and moves honest answers by {100 * cheapest.distortion:.2g}%"
    return f"{text}. {budget}."


def _about_budgets(table: Defences) -> str:
    """What the rows with a budget show, accounts included."""
    text = (
        f"A budget of fewer than {table.parameters:,} queries, the number of parameters, stops every attack "
        "of this kind, unless the attacker pools several accounts"
    )
    pooled = [
        row
        for row in table.rows
        if {DefenceKind.BUDGET, DefenceKind.ACCOUNTS} <= set(row.kinds) and row.leak < _SAFE
    ]
    return f"{text}: '{pooled[0].label}' did not stop it" if pooled else text


def _refusing(row: DefenceRow) -> str:
    return f" and refuses {row.refused:.1%} of honest sequences" if row.refused else ""


def _harmless(row: DefenceRow) -> bool:
    return row.distortion <= _HARMLESS and row.refused <= _HARMLESS
