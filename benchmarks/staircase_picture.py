"""Draws docs/images/staircase.png: one step a head. Run: python -m benchmarks.staircase_picture"""

from __future__ import annotations

from pathlib import Path

from unsoftmax import random_multi_head
from unsoftmax.audit.drawings.head_switches import draw_staircase


def main() -> None:
    model = random_multi_head(16, 5, seed=3)
    target = Path(__file__).parent.parent / "docs" / "images" / "staircase.png"
    print(f"{draw_staircase(model, target)} steps for {len(model.heads)} heads: {target.name}")


if __name__ == "__main__":
    main()
