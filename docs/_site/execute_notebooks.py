"""Runs the notebooks of docs/notebooks and stores their outputs: `python docs/_site/execute_notebooks.py`."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

__all__ = ["FOLDER", "executed"]

FOLDER = Path(__file__).parent.parent / "notebooks"


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run; a cell that fails raises. Times are not stored."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=180, kernel_name="python3", record_timing=False, coalesce_streams=True
    )
    client.execute()
    return notebook


if __name__ == "__main__":
    for place in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(place), place)
