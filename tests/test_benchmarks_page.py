"""docs/benchmarks.md is what the scripts printed, and README's tables are taken from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import __main__ as page_of_benchmarks
from benchmarks.__main__ import SECTIONS, Section, as_markdown, compose, sections_of, with_tables

ROOT = Path(__file__).parent.parent


def test_the_page_is_made_of_known_sections() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    found = sections_of(page)
    assert found
    assert set(found) <= {section.key for section in SECTIONS}
    assert compose(found) == page


def test_every_section_has_a_script() -> None:
    for section in SECTIONS:
        assert (ROOT / "benchmarks" / f"{section.module}.py").exists()


def test_the_tables_of_readme_are_those_of_the_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert with_tables(readme, sections_of((ROOT / "docs" / "benchmarks.md").read_text())) == readme


def test_one_section_is_replaced_and_the_others_stay() -> None:
    page = compose(
        {"paper": "## A\n\n`x`\n\n| a |\n|---|\n| 1 |\n", "distillation": as_markdown("plain words")}
    )
    kept = sections_of(page)
    assert kept["distillation"] == "```text\nplain words\n```\n"
    text = "before\n<!-- table paper -->\nold\n<!-- end -->\nafter"
    assert with_tables(text, kept) == "before\n<!-- table paper -->\n| a |\n|---|\n| 1 |\n<!-- end -->\nafter"
    assert (
        with_tables("<!-- table none -->\nold\n<!-- end -->", kept)
        == "<!-- table none -->\nold\n<!-- end -->"
    )


def test_a_script_that_fails_keeps_its_old_section_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_of_benchmarks, "SECTIONS", (Section("broken", "One"), Section("sound", "Two")))
    monkeypatch.setattr(
        page_of_benchmarks, "run", lambda module, arguments: None if module == "broken" else "| new |\n"
    )
    page = tmp_path / "page.md"
    page.write_text(compose({"broken": "| old |\n", "sound": "| old |\n"}))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(page)])
    with pytest.raises(SystemExit) as end:
        page_of_benchmarks.main()
    assert end.value.code == 1
    assert sections_of(page.read_text())["broken"] == "| old |\n"
    assert "| new |" in sections_of(page.read_text())["sound"]


def test_a_script_that_is_not_there_is_a_failure() -> None:
    assert page_of_benchmarks.run("no_such_script", ()) is None


@pytest.mark.parametrize("name", ["literal", "distillation", "nuclear_norm", "peer_art"])
def test_comparisons_give_time_and_memory_as_ratios(name: str) -> None:
    table = sections_of((ROOT / "docs" / "benchmarks.md").read_text())[name]
    assert "time /" in table
    assert "memory /" in table
