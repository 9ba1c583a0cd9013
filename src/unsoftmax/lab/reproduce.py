"""Runs the experiments and writes tables, pictures and one page; the same seed gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.lab.experiments import EXPERIMENTS, Chart, Check, Experiment, Findings, Table
from unsoftmax.lab.files import write_atomically
from unsoftmax.lab.page import draw, html_page, markdown_page
from unsoftmax.lab.provenance import provenance
from unsoftmax.lab.workers import crew_of

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True)
class Reproduction:
    """What was held against the paper, and where the page is."""

    page: Path
    checks: tuple[tuple[str, Check], ...]

    @property
    def holds(self) -> bool:
        """Whether every check does."""
        return all(check.holds for _, check in self.checks)


def reproduce(
    out: str | Path,
    *,
    theorems: Iterable[str] = (),
    fast: bool = False,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reproduction:
    """Runs the experiments named (all by default) and writes CSV and Markdown tables, pictures and
    `index.html` to `out`.

    fast: small grids, about a minute in all. workers: processes of one BLAS thread each that share the
    experiments out, so that the bytes do not depend on the environment; None runs them here.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     reproduce(out, theorems=["sanity"], fast=True).holds
    True
    """
    chosen = list({experiment.key: experiment for experiment in map(_experiment, theorems)}.values()) or list(
        EXPERIMENTS.values()
    )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    found: list[tuple[Experiment, Findings]] = []
    if workers is None:
        for experiment in chosen:
            if progress is not None:
                progress(experiment.title)
            found.append((experiment, experiment.run(fast, seed)))
    else:
        with crew_of(size=workers) as crew:
            tasks = [crew.submit(_run_named, experiment.key, fast, seed) for experiment in chosen]
            for experiment, task in zip(chosen, tasks, strict=True):
                if progress is not None:
                    progress(experiment.title)
                found.append((experiment, task.result()))
    for experiment, findings in found:
        for table in findings.tables:
            write_atomically(folder / _file(experiment, table, "csv"), _csv(table))
        for chart in findings.charts:
            draw(chart, folder / _file(experiment, chart, "png"))
    origin = {"seed": seed, "mode": "fast" if fast else "full", **provenance()}
    write_atomically(folder / "provenance.json", json.dumps(origin, indent=2).encode())
    write_atomically(folder / "results.md", markdown_page(found, origin).encode())
    page = write_atomically(folder / "index.html", html_page(found, origin).encode())
    return Reproduction(
        page, tuple((experiment.key, check) for experiment, findings in found for check in findings.checks)
    )


def _run_named(key: str, fast: bool, seed: int) -> Findings:
    return EXPERIMENTS[key].run(fast, seed)


def _experiment(name: str) -> Experiment:
    """By its key, in upper or lower case, or by the name that the paper gives to a part of it."""
    known = {key.casefold(): experiment for key, experiment in EXPERIMENTS.items()}
    known["c.2"] = known["c"]
    if name.casefold() not in known:
        raise UsageError(f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return known[name.casefold()]


def _file(experiment: Experiment, part: Table | Chart, suffix: str) -> str:
    return f"{experiment.key.replace('.', '_')}-{part.name}.{suffix}"


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([[_plain(value) for value in row] for row in table.rows])
    return text.getvalue().encode()


def _plain(value: Any) -> str:
    return "" if value is None else repr(float(value)) if isinstance(value, float) else str(value)
