"""Notebooks as pages: each `docs/notebooks/NAME.ipynb` becomes `notebooks/NAME.md` with the outputs stored in
it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["on_files", "page_of"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page and its pictures for every notebook; called by MkDocs."""
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        text, pictures = page_of(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown, and its pictures by file name."""
    blocks: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source.replace(".ipynb)", ".md)"))  # a page links to pages
            continue
        blocks.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            blocks.append(_shown(output, name, pictures))
    blocks.insert(1, f"[Download the notebook]({name}.ipynb)")
    return "\n\n".join(blocks) + "\n", pictures


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    """One output: a picture before HTML before text."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        place = f"{name}-{len(pictures) + 1}.png"
        pictures[place] = base64.b64decode("".join(data["image/png"]))
        return f'<div class="notebook-output" markdown>\n\n![picture]({place})\n\n</div>'
    if "text/html" in data:
        return f'<div class="notebook-output">\n{"".join(data["text/html"])}\n</div>'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
