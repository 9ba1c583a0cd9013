"""Every statement of the paper, claimed against measured, and where its constant is loose or its literal
algorithm fails.

python -m benchmarks.paper # the full grids of `unsoftmax reproduce` python -m benchmarks.paper --fast
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from unsoftmax.lab.reproduce import reproduce


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = reproduce(folder, fast=options.fast, workers=options.workers)
        text = Path(folder, "results.md").read_text()
    print(re.search(r"^\|.*?\n\n", text, flags=re.DOTALL | re.MULTILINE)[0])  # type: ignore[index]
    for remark in re.findall(r"^> (.*)$", text, flags=re.MULTILINE):
        print(f"- {remark}")
    raise SystemExit(not done.holds)


if __name__ == "__main__":
    main()
