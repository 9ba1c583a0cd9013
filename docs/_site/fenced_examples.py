"""Docstrings as Markdown: examples become code (a paragraph that begins with `>>>` would be a quotation), and
the sentences that explain parameters or fields (`width: d, where ...`) a list."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from griffe import Class, Extension, Function, Object

__all__ = ["FencedExamples"]


class FencedExamples(Extension):
    """Puts a fence around every example and a bullet before every parameter; loaded by mkdocstrings."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(listed(obj.docstring.value, _names(obj)))


def _names(obj: Object) -> list[str]:
    if isinstance(obj, Function):
        return [parameter.name for parameter in obj.parameters]
    return [name for name in obj.members if not name.startswith("_")] if isinstance(obj, Class) else []


def listed(text: str, names: Collection[str]) -> str:
    """The text with every sentence that begins with some of these names and a colon as an item of a list.

    >>> print(listed("Adds.\\n\\na: the first. b, c: two\\nothers.", ["a", "b", "c"]))
    Adds.
    <BLANKLINE>
    - `a`: the first.
    - `b, c`: two others.
    """
    return "\n\n".join(_listed(part, names) for part in text.split("\n\n"))


def _listed(paragraph: str, names: Collection[str]) -> str:
    if not names or paragraph.startswith(">>>"):
        return paragraph
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    begins = re.compile(rf"(?:^|(?<=[.)] ))((?:{one})(?:, (?:{one}))*): ")
    words = " ".join(line.strip() for line in paragraph.splitlines())
    before, *parts = begins.split(words)
    if not parts:
        return paragraph
    items = [f"- `{name}`: {said.strip()}" for name, said in zip(parts[::2], parts[1::2], strict=True)]
    return "\n".join(([before.strip(), ""] if before.strip() else []) + items)


def fenced(text: str) -> str:
    """The text with its examples between fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()[2]
    '```pycon'
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)
