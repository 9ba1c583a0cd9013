"""The reference: a page a subject, with every public name of the package. A new public name appears by
itself, on the page of the room it lives in."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import unsoftmax
import unsoftmax.testing

__all__ = ["on_files", "pages"]

_PAGES = {  # page: its first line, and the rooms whose public names it shows
    "recovery": (
        "What most people need: recover, check, plan, and what they return.",
        ("recovery", "answers", "certify", "families"),
    ),
    "models": ("What may hide behind a target, and what comes back.", ("models",)),
    "targets": (
        "Where answers come from, what may be done to them, and who keeps the books.",
        ("oracles", "ledger"),
    ),
    "learners": ("Who learns: the usual learners, and the theorems to the letter.", ("learners",)),
    "meters-and-solvers": (
        "The two halves of a learner ([write your own](../extending.md)).",
        ("meters", "solvers"),
    ),
    "audit": ("The whole job: audits, reports, defences.", ("audit",)),
    "outcomes-and-errors": ("How learning can end, and what is raised.", ("outcomes", "errors")),
}
_FIRST = ("recover", "check", "plan", "Result", "Model", "SingleHead", "Oracle", "as_oracle", "audit_target")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages; called by MkDocs."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """Every page of the reference by name."""
    homes = unsoftmax.public_homes()
    left = dict(homes)
    written = {}
    for page, (subject, rooms) in _PAGES.items():
        names = [name for name, home in left.items() if home.partition(".")[0] in rooms]
        for name in names:
            del left[name]
        names.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name.lower()))
        title = page.replace("-", " ").capitalize()
        written[page] = _page(title, subject, [_entry(name, homes[name]) for name in names])
    if left:
        raise ValueError(f"no page of the reference shows {left}; add their room to _PAGES")
    suites = [f"::: unsoftmax.testing.{name}" for name in unsoftmax.testing.__all__]
    written["testing"] = _page("Testing", "Suites for oracles, meters, solvers, learners, models.", suites)
    links = "\n".join(f"- [{page.replace('-', ' ').capitalize()}]({page}.md)" for page in written)
    written["index"] = f"# Reference\n\nEvery public name of `unsoftmax`.\n\n{links}\n"
    return written


def _entry(name: str, home: str) -> str:
    """What mkdocstrings reads. A function in a module of the same name would be taken for the module."""
    room = find_spec(f"unsoftmax.{home}")
    modules = [] if room is None else room.submodule_search_locations or []
    if not any(Path(folder, f"{name}.py").exists() for folder in modules):
        return f"::: unsoftmax.{name}"
    return f"::: unsoftmax.{home}.{name}.{name}\n    options:\n      heading: unsoftmax.{name}"


def _page(title: str, subject: str, entries: list[str]) -> str:
    return "\n\n".join([f"# {title}", subject, *entries]) + "\n"
