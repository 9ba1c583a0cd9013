"""A result as one picture: what was recovered, how fresh answers agreed, and what was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsoftmax.certify import Certificate
from unsoftmax.ledger import Bill
from unsoftmax.models.heads import heads_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unsoftmax.recovery.result import Result

__all__ = ["draw_result"]

_MOST_HEADS = 4  # that fit beside each other on a page
_FLOOR = 1e-17  # below the last digit of a relative deviation; a logarithmic axis shows no zero


def draw_result(result: Result) -> Figure:
    """W of up to four heads, their singular values, deviations on fresh queries, the bill."""
    import matplotlib.pyplot as plt  # a notebook shows figures once this is imported

    heads = heads_of(result.model)[:_MOST_HEADS]
    below = [*(["spectra"] if heads else []), *(["fresh"] if result.certificate else []), "bill"]
    above = [f"head {index}" for index in range(len(heads))]
    rows = [above, below] if len(above) > 1 else [above + below]
    figure = plt.figure(figsize=(3.4 * max(map(len, rows)), 3.1 * len(rows)), layout="constrained")
    panels: dict[str, Axes] = {}
    for row, names in enumerate(rows):
        for column, name in enumerate(names):
            panels[name] = figure.add_subplot(len(rows), len(names), row * len(names) + column + 1)
    for index, (name, W, _) in enumerate(heads):
        _show_matrix(panels[f"head {index}"], name, W)
    if heads:
        _show_spectra(panels["spectra"], [(name, np.linalg.svd(W, compute_uv=False)) for name, W, _ in heads])
    if result.certificate is not None:
        _show_deviations(panels["fresh"], result.certificate)
    _show_bill(panels["bill"], result.queries, None if result.model is None else result.model.parameters)
    figure.suptitle(f"{result.status}: {result.family}, {result.size}", fontsize=11)
    plt.close(figure)  # returned, so that a notebook shows it once
    return figure


def _show_matrix(axes: Axes, name: str, W: np.ndarray) -> None:
    limit = float(np.abs(W).max()) or 1.0
    axes.imshow(W, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set(title=name, xticks=[], yticks=[])


def _show_spectra(axes: Axes, spectra: list[tuple[str, np.ndarray]]) -> None:
    for name, values in spectra:
        axes.plot(np.arange(1, len(values) + 1), values, "o-", markersize=3, label=name)
    axes.set(title="singular values of W", xlabel="by size")
    if len(spectra) > 1:
        axes.legend(fontsize=7, frameon=False)


def _show_deviations(axes: Axes, certificate: Certificate) -> None:
    """Each kind of fresh sequence, against what is allowed."""
    kinds = list(certificate.by_kind)
    seen = [max(value, _FLOOR) for value in certificate.by_kind.values()]
    axes.plot(seen, kinds, "o", color="#2563b8", markersize=4, clip_on=False)
    axes.axvline(certificate.allowed, color="#a8201a", linestyle="--", linewidth=1)
    axes.set(title="deviation on fresh queries", xscale="log", xlim=(_FLOOR, 30.0 * certificate.allowed))
    axes.set_xlabel("relative; left edge: no more than rounding; dashed: allowed", fontsize=7)
    axes.tick_params(axis="y", labelsize=6)
    axes.invert_yaxis()


def _show_bill(axes: Axes, bill: Bill, parameters: int | None) -> None:
    phases = dict(bill.by_phase)
    bars = axes.barh(list(phases), list(phases.values()), color="#5b7083")
    axes.bar_label(bars, labels=[f" {count:,}" for count in phases.values()], fontsize=7)
    learnt = "" if parameters is None else f"\nfor {parameters:,} parameters"
    axes.set(title=f"{bill.total:,} queries{learnt}")
    axes.margins(x=0.25)
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
