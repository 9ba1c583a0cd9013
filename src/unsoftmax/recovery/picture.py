"""A result as one picture: what was recovered, how fresh answers agreed, and what was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsoftmax.certify import Certificate
from unsoftmax.ledger import Bill
from unsoftmax.models import Model, TokenHeads
from unsoftmax.models.heads import heads_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unsoftmax.recovery.result import Result

__all__ = ["draw_result"]

_MOST_HEADS = 4  # that fit beside each other on a page
_FLOOR = 1e-17  # below the last digit of a relative deviation; a logarithmic axis shows no zero


def draw_result(result: Result) -> Figure:
    """W of up to four heads, singular values of W or of the scores, deviations on fresh queries, the bill."""
    import matplotlib.pyplot as plt  # a notebook shows figures once this is imported

    heads = heads_of(result.model)[:_MOST_HEADS]
    spectra = {name: np.linalg.svd(W, compute_uv=False) for name, W, _ in heads} or _of_scores(result.model)
    below = [*(["spectra"] if spectra else []), *(["fresh"] if result.certificate else []), "bill"]
    above = [f"head {index}" for index in range(len(heads))]
    rows = [above, below] if len(above) > 1 else [above + below]
    figure = plt.figure(figsize=(3.4 * max(map(len, rows)), 3.1 * len(rows)), layout="constrained")
    panels: dict[str, Axes] = {}
    # a figure a row: one layout does not keep rows of two and of three panels apart
    for part, names in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        panels |= zip(names, part.subplots(1, len(names), squeeze=False)[0], strict=True)
    for index, (name, W, _) in enumerate(heads):
        _show_matrix(panels[f"head {index}"], name, W)
    if spectra:
        _show_spectra(panels["spectra"], "W" if heads else "the scores", spectra)
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


def _of_scores(model: Model | None) -> dict[str, np.ndarray]:
    """Singular values of the tables of scores, where the model is one over token ids."""
    if not isinstance(model, TokenHeads):
        return {}
    return {f"head {index}": head.table.svd()[1] for index, head in enumerate(model.heads[:_MOST_HEADS], 1)}


def _show_spectra(axes: Axes, of: str, spectra: dict[str, np.ndarray]) -> None:
    for name, values in spectra.items():
        axes.plot(np.arange(1, len(values) + 1), values, "o-", markersize=3, label=name)
    axes.set(title=f"singular values of {of}", xlabel="by size")
    axes.locator_params(axis="x", integer=True)
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
