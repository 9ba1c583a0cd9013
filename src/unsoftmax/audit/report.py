"""The report: one HTML file that needs nothing else, and the same facts as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.audit.drawings.figures import (
    draw_curve,
    draw_defences,
    draw_matrices,
    draw_phases,
    draw_spectra,
)
from unsoftmax.audit.facts import facts_of
from unsoftmax.audit.pipeline import Audit
from unsoftmax.audit.standards.ml_bom import ml_bom_of
from unsoftmax.audit.standards.sarif import sarif_of
from unsoftmax.models.heads import heads_of

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

__all__ = ["render", "write_report"]


def write_report(done: Audit, folder: str | Path, in_words: Callable[[str], str] = str) -> dict[str, str]:
    """Writes report.html, report.json, report.sarif, bom.cdx.json and, when something was recovered,
    model.safetensors; returns their paths. A model of an earlier audit in the same folder is kept as
    earlier-model.safetensors where this one recovered nothing. in_words: how the page names arguments in its
    advice.

    >>> import tempfile, unsoftmax
    >>> done = unsoftmax.audit_target("demo:single-head?d=4")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(unsoftmax.write_report(done, folder))
    ['bom', 'json', 'model', 'report', 'sarif']
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    files = {"report": "report.html", "json": "report.json", "sarif": "report.sarif", "bom": "bom.cdx.json"}
    artifacts = {name: str(place / file) for name, file in files.items()}
    kept = place / "model.safetensors"
    if done.result.model is not None:
        artifacts["model"] = str(done.result.model.save(kept))
    elif kept.exists():  # it was paid for, but does not belong beside this report
        kept.replace(place / "earlier-model.safetensors")
    facts = facts_of(done) | {"artifacts": artifacts}
    contents = {
        "json": facts,
        "sarif": sarif_of(facts, done.result, done.date),
        "bom": ml_bom_of(facts, done.result, done.date),
    }
    for name, content in contents.items():
        text = json.dumps(_speakable(content), indent=2, ensure_ascii=False) + "\n"
        (place / files[name]).write_text(text, encoding="utf-8")
    told = facts | {"advice": in_words(facts["advice"])}
    (place / "report.html").write_text(render(done, told), encoding="utf-8")
    return artifacts


def render(done: Audit, facts: dict[str, Any] | None = None) -> str:
    """The page. Everything that comes from a target is escaped; figures hold numbers and our own words
    only."""
    from markupsafe import Markup

    told = facts_of(done) if facts is None else facts
    drawn = _figures(done, told).items()
    pictures = {name: Markup(figure) for name, figure in drawn}  # noqa: S704 - drawn here, from numbers
    ranked = [] if done.defences is None else done.defences.ranked
    return _template().render(facts=told, figures=pictures, ranked=ranked, margin=_margin)


def _figures(done: Audit, facts: dict[str, Any]) -> dict[str, str]:
    result = done.result
    drawn: dict[str, str] = {}
    if result.model is not None:
        heads = heads_of(result.model)
        if heads:
            drawn["matrices"] = draw_matrices([W for _, W, _ in heads], [name for name, _, _ in heads])
            drawn["spectra"] = draw_spectra(
                [np.array(head["spectrum"]) for head in facts["model_heads"]], [name for name, _, _ in heads]
            )
        if done.curve.queries:
            drawn["curve"] = draw_curve(done.curve.queries, done.curve.error, result.error_bound)
    marks = [] if result.model is None else [("parameters", result.model.parameters)]
    if facts["paper_queries"] is not None:
        marks.append(("paper: d + d²", facts["paper_queries"]))
    if result.queries.total:
        drawn["phases"] = draw_phases(dict(result.queries.by_phase), marks)
    if done.defences is not None and any(row.attacked for row in done.defences.rows):
        drawn["defences"] = draw_defences(done.defences.ranked)
    return drawn


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("unsoftmax.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _with_code
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["short"] = _short
    environment.filters["percent"] = lambda value: f"{100 * value:.2g} %" if value else "0"
    return environment.get_template("report.html.j2")


def _with_code(text: str) -> Markup:
    """The text with `names` set as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def _short(value: float | None) -> str:
    """A figure with two digits, as people write it."""
    if value is None:
        return "–"
    if value == 0.0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _margin(observed: float, allowed: float, largest: float) -> str:
    """How many times smaller than allowed. `largest`: in the answers' own unit, so that 0 beside it means no
    more than their errors."""
    if observed == 0.0:
        return "no deviation" if largest == 0.0 else "within errors"
    times = allowed / observed
    return f"{_short(float(f'{times:.1e}'))} ×" if times >= 10 else f"{times:.2g} ×"


def _speakable(content: Any) -> Any:
    """Numbers that JSON cannot say become null; numpy's become plain ones."""
    if isinstance(content, dict):
        return {str(key): _speakable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_speakable(value) for value in content]
    if isinstance(content, np.generic):
        return _speakable(content.item())
    if isinstance(content, float) and content - content != 0.0:
        return None
    return content
