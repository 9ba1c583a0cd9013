"""The page: claimed against measured, tables, pictures. Markdown for reading in place, HTML for everything in
one view."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from unsoftmax.lab.experiments.base import Chart, Check, Experiment, Findings, Table
from unsoftmax.lab.files import write_atomically

__all__ = ["draw", "html_page", "markdown_page", "show"]

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Provably Learning Attention with Queries,
reproduced</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color:
#1c1c1c; background: #fff; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; margin: 0.8rem 0; font-size: 0.9rem; } caption { text-align: left; color:
#555; }
th, td { border: 1px solid #ccc; padding: 0.25rem 0.6rem; text-align: right; } th { background: #f3f3f3; }
td:first-child, th:first-child, .text td, .text th { text-align: left; }
.holds { color: #146c2e; font-weight: 600; } .fails { color: #b3261e; font-weight: 600; }
.remark { background: #fff8e1; border-left: 4px solid #f0b400; padding: 0.5rem 0.8rem; }
img { max-width: 100%; } .wide { overflow-x: auto; } footer { margin-top: 3rem; color: #555; font-size:
0.85rem; }
</style></head><body>
<h1>Provably Learning Attention with Queries, reproduced</h1>
<p>Every statement of <a href="https://arxiv.org/abs/2601.16873">arXiv 2601.16873</a> held against
measurements.
{{ origin.mode }} mode, seed {{ origin.seed }}: {{ n_hold }} of {{ n_checks }} checks hold.</p>
<div class="wide"><table class="text"><tr><th>statement</th><th>claimed</th><th>measured</th><th></th></tr>
{% for part in parts %}{% for check in part.findings.checks %}
<tr><td><a href="#{{ part.key }}">{{ part.title if loop.first else "" }}</a></td><td>{{ check.claim
}}</td><td>{{ check.measured }}</td>
<td class="{{ 'holds' if check.holds else 'fails' }}">{{ "holds" if check.holds else "fails" }}</td></tr>
{% endfor %}{% endfor %}</table></div>
{% for part in parts %}
<h2 id="{{ part.key }}">{{ part.title }}</h2>
<p>{{ part.statement }}</p>
{% for remark in part.findings.remarks %}<p class="remark">{{ remark }}</p>{% endfor %}
{% for chart in part.charts %}<p><img alt="{{ chart.alt }}" src="data:image/png;base64,{{ chart.data
}}"></p>{% endfor %}
{% for table in part.findings.tables %}<div class="wide"><table><caption>{{ part.file(table) }}</caption>
<tr>{% for column in table.columns %}<th>{{ column }}</th>{% endfor %}</tr>
{% for row in table.rows %}<tr>{% for value in row %}<td>{{ show(value) }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% endfor %}
{% endfor %}
<footer>unsoftmax {{ origin.unsoftmax }} (code {{ origin.code }}), Python {{ origin.python }},
{% for name, version in origin.packages.items() %}{{ name }} {{ version }}{{ "" if loop.last else ", " }}{%
endfor %}.
No figure on this page depends on time.</footer>
</body></html>
"""


def html_page(found: Sequence[tuple[Experiment, Findings]], origin: dict[str, Any]) -> str:
    """One self-contained page: pictures are inside it."""
    from jinja2 import Environment, StrictUndefined

    parts = [
        {
            "key": experiment.key,
            "title": experiment.title,
            "statement": experiment.statement,
            "findings": findings,
            "file": lambda table, experiment=experiment: (
                f"{experiment.key.replace('.', '_')}-{table.name}.csv"
            ),
            "charts": [
                {"alt": f"{chart.y} against {chart.x}", "data": b64encode(_png(chart)).decode()}
                for chart in findings.charts
            ],
        }
        for experiment, findings in found
    ]
    checks = _checks(found)
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(_TEMPLATE)
    return page.render(
        parts=parts,
        origin=origin,
        show=show,
        n_checks=len(checks),
        n_hold=sum(check.holds for check in checks),
    )


def markdown_page(found: Sequence[tuple[Experiment, Findings]], origin: dict[str, Any]) -> str:
    """The same without pictures."""
    checks = _checks(found)
    lines = [
        "# Provably Learning Attention with Queries, reproduced",
        "",
        f"{origin['mode']} mode, seed {origin['seed']}: {sum(check.holds for check in checks)} of "
        f"{len(checks)} checks hold.",
        "",
        "| statement | claimed | measured | |",
        "|---|---|---|---|",
    ]
    for experiment, findings in found:
        for check in findings.checks:
            claim, measured = (text.replace("|", "\\|") for text in (check.claim, check.measured))
            lines.append(
                f"| {experiment.key} | {claim} | {measured} | {'holds' if check.holds else '**fails**'} |"
            )
    for experiment, findings in found:
        lines += ["", f"## {experiment.title}", "", experiment.statement, ""]
        lines += [f"> {remark}\n" for remark in findings.remarks]
        for table in findings.tables:
            lines += [*_markdown(table), ""]
    return "\n".join(lines) + "\n"


def draw(chart: Chart, path: Path) -> Path:
    """The chart as a PNG; the same data give the same bytes."""
    return write_atomically(path, _png(chart))


def show(value: Any) -> str:
    """A value for people: four digits are enough in print, the CSV has all of them.

    >>> show(1.23456e-7), show(12.0), show("x"), show(None)
    ('1.2e-07', '12', 'x', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _checks(found: Sequence[tuple[Experiment, Findings]]) -> list[Check]:
    return [check for _, findings in found for check in findings.checks]


def _markdown(table: Table) -> list[str]:
    rows = [[show(value).replace("|", "\\|") for value in row] for row in table.rows]
    return [
        "| " + " | ".join(table.columns) + " |",
        "|" + "---|" * len(table.columns),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _png(chart: Chart) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colour = -1
    for line in chart.lines:
        colour += not line.bound  # a bound has the colour of the line that it bounds
        style = "--" if line.bound else "-"
        axes.plot(
            line.x,
            line.y,
            style,
            color=f"C{max(0, colour) % 10}",
            marker=None if line.bound else "o",
            markersize=4,
            label=line.name,
        )
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()
