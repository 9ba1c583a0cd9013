"""Draws docs/images/staircase.png: one step a head.

python benchmarks/staircase_picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unsoftmax import Ledger, random_multi_head
from unsoftmax.learners.multi_head.staircase import draw_circle, find_staircase
from unsoftmax.meters.responses import Responses
from unsoftmax.targets import as_oracle


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = random_multi_head(16, 5, seed=3)
    respond = Responses(Ledger(as_oracle(model)), model.v)
    stairs = find_staircase(respond, draw_circle(respond, np.random.default_rng(4)))
    angles = np.linspace(0.0, np.pi, 1200)
    size = float(np.linalg.norm(stairs.circle.a))
    figure, axes = plt.subplots(figsize=(7.0, 3.2))
    for factor, label in ((0.02, "small asking rows"), (0.3, "larger"), (64.0, "saturated: a staircase")):
        values = respond(stairs.circle.a, factor * stairs.saturation * stairs.circle.points(angles))
        axes.plot(
            angles, values / size, lw=1.6 if factor > 1 else 1.0, color="black" if factor > 1 else None, alpha=1.0 if factor > 1 else 0.6, label=label
        )
    for number, step in enumerate(stairs.steps, 1):
        axes.axvline(step.angle, color="tab:red", lw=0.6, ls=":")
        axes.annotate(f"head {number}", (step.angle, axes.get_ylim()[1]), fontsize=7, color="tab:red", ha="center", va="bottom")
    axes.set_xlabel("direction of the asking row on a half circle (radians)")
    axes.set_ylabel("answer beyond that of one row")
    axes.legend(fontsize=7, loc="lower left")
    figure.tight_layout()
    target = Path(__file__).parent.parent / "docs" / "images" / "staircase.png"
    figure.savefig(target, dpi=130)
    print(f"{len(stairs.steps)} steps for {len(model.heads)} heads: {target}")


if __name__ == "__main__":
    main()
