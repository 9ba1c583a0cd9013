"""Every Python block in README and docs runs; every linked file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block.replace("/tmp/", f"{tmp_path}/"), page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        place = page.parent / target
        generated = place.parent.name == "reference" or place.with_suffix(".ipynb").exists()  # by the site
        assert place.exists() or generated, target


def test_our_own_results_say_what_they_assume_and_where_they_are_tested() -> None:
    own = (
        (ROOT / "docs" / "theory-map.md")
        .read_text()
        .split("## Our own results")[1]
        .split("## What is measured")[0]
    )
    results = re.split(r"^### ", own, flags=re.MULTILINE)[1:]
    assert len(results) >= 10
    for result in results:
        for part in ("**Assumes**", "**Statement.**", "**Why.**", "**Test** `tests/"):
            assert part in result.replace("\n", " "), (result.splitlines()[0], part)


def test_files_and_scripts_that_are_named_exist() -> None:
    sources = [path for room in ("src", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    for page in [*PAGES, *sources]:
        text = page.read_text()
        for name in set(re.findall(r"`((?:\w+/)+\w+\.py)`", text)):
            assert (ROOT / name).exists() or (ROOT / "src" / "unsoftmax" / name).exists(), (page.name, name)
        for name in set(re.findall(r"(?:-m |`)benchmarks\.([a-z]\w*)", text)):
            assert (ROOT / "benchmarks" / f"{name}.py").exists(), (page.name, name)
