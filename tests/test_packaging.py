"""What a package needs beside its code: metadata, citation, workflow, templates, hooks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import unsoftmax

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
YAML = [ROOT / "CITATION.cff", ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert isinstance(read(path), dict)


def test_the_citation_has_what_the_format_requires_and_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == unsoftmax.__version__
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]


def test_the_command_is_the_one_that_takes_care_of_interrupts() -> None:
    assert PROJECT["scripts"]["unsoftmax"] == "unsoftmax.__main__:main"


def test_classifiers_match_what_is_required() -> None:
    versions = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    least = PROJECT["requires-python"].removeprefix(">=")
    assert min(versions, key=lambda text: [int(part) for part in text.split(".")]) == least
    assert all(url.startswith("https://") for url in PROJECT["urls"].values())


def test_the_hooks_lint_as_the_makefile_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    linters = re.findall(r"\$\(BIN\)/((?:ruff|mypy)[a-z ]*)", makefile)
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"] for hook in local["hooks"]]
    assert len(linters) == 3
    for linter in linters:
        tool, _, verb = linter.partition(" ")
        assert any(entry.startswith(f".venv/bin/{tool} {verb}".strip()) for entry in entries)


def test_the_workflow_runs_what_the_makefile_offers() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = re.findall(r"run: make (\w+)", text)
    assert {"check", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_issue_forms_have_what_the_format_requires(name: str) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / name)
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in ("dropdown", "input", "textarea", "checkboxes", "markdown")
        assert field["attributes"]["label"]
