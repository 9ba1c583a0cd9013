"""The notebooks run from top to bottom, and what is stored in them is what they give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def load_script(name: str) -> ModuleType:
    """A file of docs/_site, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: Any) -> list[list[str]]:
    """What kinds of output each cell has: text, tables, pictures."""
    return [
        [kind for output in cell.get("outputs", []) for kind in sorted(output.get("data", {"stream": 0}))]
        for cell in notebook["cells"]
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # those of the kernel's transport
def test_a_notebook_runs_and_shows_what_is_stored(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    again = load_script("execute_notebooks").executed(path)
    assert shown(again) == shown(stored)
    assert any("image/png" in kinds for kinds in shown(stored))
    assert any("text/html" in kinds for kinds in shown(stored)) or path.stem == "reproduce-a-theorem"


def test_there_are_three_and_a_page_has_their_pictures() -> None:
    assert len(NOTEBOOKS) == 3
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)  # type: ignore[no-untyped-call]
    text, pictures = load_script("notebook_pages").page_of(notebook, "name")
    assert "![picture](name-1.png)" in text
    assert pictures["name-1.png"].startswith(b"\x89PNG")
    assert "<table>" in text
