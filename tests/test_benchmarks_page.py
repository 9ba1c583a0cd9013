"""docs/benchmarks.md is what the scripts printed, and README's tables are taken from it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.__main__ import SECTIONS, as_markdown, compose, sections_of, with_tables

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
    page = compose({"paper": "## A\n\n`x`\n\n| a |\n|---|\n| 1 |\n", "distillation": as_markdown("plain words")})
    kept = sections_of(page)
    assert kept["distillation"] == "```text\nplain words\n```\n"
    text = "before\n<!-- table paper -->\nold\n<!-- end -->\nafter"
    assert with_tables(text, kept) == "before\n<!-- table paper -->\n| a |\n|---|\n| 1 |\n<!-- end -->\nafter"
    assert with_tables("<!-- table none -->\nold\n<!-- end -->", kept) == "<!-- table none -->\nold\n<!-- end -->"
