"""Pictures of matrices. Matplotlib is imported when a picture is drawn, not before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["draw_recovery"]


def draw_recovery(
    true: Array, recovered: Array, path: str | Path, *, title: str = "", hidden: str = "hidden W"
) -> Path:
    """The hidden matrix, the recovered one, and their difference, side by side, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained", dpi=170)
    FigureCanvasAgg(figure)
    difference = recovered - true
    limit = float(np.abs(true).max()) or 1.0
    small = float(np.abs(difference).max()) or np.finfo(float).tiny
    panels = (
        (hidden, true, limit),
        ("recovered", recovered, limit),
        (f"difference (largest {small:.0e})", difference, small),
    )
    for axes, (name, matrix, span) in zip(figure.subplots(1, 3), panels, strict=True):
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-span, vmax=span, interpolation="nearest")
        axes.set_title(name, fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
        bar = figure.colorbar(image, ax=axes, shrink=0.85, ticks=[-span, 0.0, span])
        bar.set_ticklabels([f"{-span:.1g}", "0", f"{span:.1g}"])
    if title:
        figure.suptitle(title, fontsize=12)
    target = Path(path)
    figure.savefig(target, format="png")
    return target
