"""Small tables of HTML, for notebooks: everything that comes from a target is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["facts_table", "table"]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a header.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts_table(title: str, facts: Sequence[tuple[str, object]]) -> str:
    """A title, and a fact a line."""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts
    )
    return f"<p><b>{escape(title)}</b></p><table><tbody>{body}</tbody></table>"


def _cells(row: Sequence[object]) -> str:
    return "".join(f"<td>{escape(str(value))}</td>" for value in row)
