"""Examples in docstrings as code: a paragraph that begins with `>>>` would be a quotation in Markdown."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object

__all__ = ["FencedExamples"]


class FencedExamples(Extension):
    """Puts a fence around every example; loaded by mkdocstrings."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples between fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()[2]
    '```pycon'
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)
