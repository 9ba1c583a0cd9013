"""The picture of several heads: one step per head, when the asking row runs over a half circle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unsoftmax.learners.several_heads.head_switches import draw_circle, find_staircase
from unsoftmax.ledger import Ledger
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.models import MultiHead
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = ["draw_staircase"]

_SEED = 4  # of the circle that is drawn


def draw_staircase(model: MultiHead, path: str | Path) -> int:
    """Draws the staircase of a model (asking the model itself, nobody else) and returns the number of its
    steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    respond = Responses(Ledger(as_oracle(model)), model.v)
    stairs = find_staircase(respond, draw_circle(respond, np.random.default_rng(_SEED)))
    angles = np.linspace(0.0, np.pi, 1200)
    size = float(np.linalg.norm(stairs.circle.a))
    figure = Figure(figsize=(7.0, 3.2), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for factor, label in ((0.02, "small asking rows"), (0.3, "larger"), (64.0, "saturated: a staircase")):
        values = respond(stairs.circle.a, factor * stairs.saturation * stairs.circle.points(angles))
        sharp = factor > 1.0
        axes.plot(
            angles,
            values / size,
            lw=1.6 if sharp else 1.0,
            color="black" if sharp else None,
            alpha=1.0 if sharp else 0.6,
            label=label,
        )
    for number, step in enumerate(stairs.steps, 1):
        axes.axvline(step.angle, color="tab:red", lw=0.6, ls=":")
        axes.annotate(
            str(number),
            (step.angle, axes.get_ylim()[1]),
            fontsize=7,
            color="tab:red",
            ha="center",
            va="bottom",
        )
    axes.set_title("each numbered step is a head", fontsize=7, color="tab:red", pad=14)
    axes.set_xlabel("direction of the asking row on a half circle (radians)")
    axes.set_ylabel("answer beyond that of one row")
    axes.legend(fontsize=7, loc="lower left")
    figure.savefig(Path(path), format="png")
    return len(stairs.steps)
