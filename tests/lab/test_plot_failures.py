"""Plots of sweeps: failures are shown, and families are never pooled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unsoftmax.lab.sweep.plot import NothingToDraw, Plot, _lines, plot_table


def row(family: str, d: int, status: str, error: float | None) -> dict[str, Any]:
    figures = {"error_bound": None, "queries": 10, "learning": 5, "parameters": 5, "max_deviation": 0.0}
    return {"family": family, "d": d, "status": status, "error": error} | figures


ROWS = [
    row("single-head", 2, "EXACT", 1e-15),
    row("single-head", 4, "EXACT", 2e-15),
    row("multi-head", 2, "EXACT", 1e-12),
    row("multi-head", 4, "UNRESOLVED", None),
    row("multi-head", 4, "BUDGET_SPENT", None),
]


def test_families_have_lines_of_their_own_and_failures_are_counted() -> None:
    lines, lost = _lines(ROWS, Plot("d", "error"))
    assert lines[("single-head",)][2] == [1e-15]
    assert lines[("multi-head",)][2] == [1e-12]
    assert {key: dict(counts) for key, counts in lost.items()} == {("multi-head",): {4: 2}}


def test_queries_of_failures_are_not_pooled_with_those_of_successes() -> None:
    lines, lost = _lines(ROWS, Plot("d", "queries"))
    assert list(lines[("multi-head",)]) == [2]
    assert lost[("multi-head",)][4] == 2


def test_rates_count_failures_themselves() -> None:
    lines, lost = _lines(ROWS, Plot("d", "recovered"))
    assert lines[("multi-head",)][4] == [0.0, 0.0]
    assert not lost


def test_it_is_drawn(tmp_path: Path) -> None:
    assert plot_table(ROWS, Plot("d", "error"), tmp_path / "a.png").stat().st_size > 5000
    with pytest.raises(NothingToDraw):
        plot_table(ROWS[3:], Plot("d", "error"), tmp_path / "b.png")
