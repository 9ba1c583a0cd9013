"""Runs benchmarks and writes what they print to docs/benchmarks.md, and the parts that README shows to
README.md.

    python -m benchmarks                      # every section of the page
    python -m benchmarks distillation paper   # only these; the rest of the page stays as it is
    python -m benchmarks --fast               # small sizes, for a look; nothing is written unless --out says
    where

A script that fails leaves its old section and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEADER = """# Benchmarks

Written by `make bench`; every section names its command. Errors are relative errors of all parameters, up to
the symmetry of the model,
measured against the hidden truth. Queries are without verification unless a table says otherwise. Times and
memory are ratios within one run:
absolute ones depend on the machine, and on what else it does.
"""


@dataclass(frozen=True)
class Section:
    """A part of the page: the module that prints it, and its options for the page and for a quick look."""

    module: str
    title: str
    options: tuple[str, ...] = ()
    fast: tuple[str, ...] = ("--fast",)
    name: str = ""

    @property
    def key(self) -> str:
        return self.name or self.module


SECTIONS = (
    Section("paper", "The paper's statements, claimed against measured"),
    Section("literal", "Against the paper's algorithms to the letter"),
    Section("distillation", "Against training a student"),
    Section("nuclear_norm", "Against the convex program, by cvxpy and SCS"),
    Section(
        "peer_art",
        "Against the extraction attack of ART, for the network part",
        ("--seeds", "4"),
        ("--seeds", "1", "--limit", "20"),
    ),
    Section("published_counts", "Against the published count for several heads"),
    Section("single_head", "One head: widths, kinds, ranks", ("--seeds", "3"), ("--seeds", "1")),
    Section("multi_head", "Several heads: the bill", ("--bills",), ("--seeds", "1", "--only", "dead")),
    Section("torch_layer", "A torch layer, recovered and rebuilt"),
    Section("never_silent", "Boxes that are none of ours", ("--seeds", "2"), ("--seeds", "1")),
    Section("sweep_table", "Sweeps: one table whoever computes it"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"sections: {', '.join(section.key for section in SECTIONS)}"
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    unknown = set(options.names) - {section.key for section in SECTIONS}
    if unknown:
        parser.error(
            f"there is no section {sorted(unknown)[0]!r}; choose from "
            f"{', '.join(section.key for section in SECTIONS)}"
        )
    page = (
        options.out if options.out is not None else None if options.fast else ROOT / "docs" / "benchmarks.md"
    )
    kept = sections_of(page.read_text()) if page is not None and page.exists() else {}
    failed = []
    for section in SECTIONS:
        if options.names and section.key not in options.names:
            continue
        print(f"\n## {section.title}\n", flush=True)
        arguments = section.fast if options.fast else section.options
        printed = run(section.module, arguments)
        if printed is None:
            failed.append(section.key)
            continue
        command = " ".join(["python -m", f"benchmarks.{section.module}", *arguments])
        kept[section.key] = f"## {section.title}\n\n`{command}`\n\n{as_markdown(printed)}"
        if page is not None:
            page.write_text(compose(kept))
    if page == ROOT / "docs" / "benchmarks.md":
        readme = ROOT / "README.md"
        readme.write_text(with_tables(readme.read_text(), kept))
    for name in failed:
        print(f"benchmarks.{name} failed; its section was left as it was", file=sys.stderr)
    raise SystemExit(bool(failed))


def run(module: str, arguments: tuple[str, ...]) -> str | None:
    """What the script prints, shown as it comes; None when it fails."""
    environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as script:
        assert script.stdout is not None
        for line in script.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines) if script.returncode == 0 else None


def as_markdown(printed: str) -> str:
    """Tables as they are; anything else in a fence."""
    text = printed.strip("\n")
    return text + "\n" if re.search(r"^\|", text, flags=re.MULTILINE) else f"```text\n{text}\n```\n"


def compose(sections: dict[str, str]) -> str:
    """The page, its sections in the order of the table."""
    parts = [
        f"<!-- section {section.key} -->\n{sections[section.key]}<!-- end -->\n"
        for section in SECTIONS
        if section.key in sections
    ]
    return "\n".join([HEADER, *parts])


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page that `compose` wrote."""
    return dict(re.findall(r"<!-- section (\w+) -->\n(.*?)<!-- end -->\n", page, flags=re.DOTALL))


def with_tables(text: str, sections: dict[str, str]) -> str:
    """`text` with every block between '<!-- table NAME -->' and '<!-- end -->' replaced by the first table of
    that section."""

    def table(match: re.Match[str]) -> str:
        found = re.search(r"^\|.*?(?=^[^|]|\Z)", sections.get(match[1], ""), flags=re.DOTALL | re.MULTILINE)
        return f"<!-- table {match[1]} -->\n{found[0].strip()}\n<!-- end -->" if found else match[0]

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
