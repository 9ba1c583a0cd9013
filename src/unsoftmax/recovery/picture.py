"""A result as one picture: what was recovered, how fresh answers agreed, and what was paid."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

import numpy as np

from unsoftmax.certify import Certificate
from unsoftmax.ledger import Bill
from unsoftmax.models import Model, MultiHead, SingleHead, TokenHeads
from unsoftmax.models.heads import heads_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unsoftmax.recovery.result import Result

__all__ = ["draw_result"]

_MOST_MATRICES = 4  # that fit beside each other on a page
_PANEL = 3.6  # inches: the names of fresh sequences take half of that
_COLUMNS = 110  # of a reason over two panels, in letters of 8 points
_FLOOR = 1e-17  # below the last digit of a relative deviation; a logarithmic axis shows no zero


def draw_result(result: Result) -> Figure:
    """Up to four matrices of the model, their singular values, deviations on fresh queries, the bill."""
    import matplotlib.pyplot as plt  # a notebook shows figures once this is imported

    named = _matrices_of(result.model)
    matrices = dict(list(named.items())[:_MOST_MATRICES])
    of, spectra = _spectra_of(result.model)
    below = [*(["spectra"] if spectra else []), *(["fresh"] if result.certificate else []), "bill"]
    rows = _in_rows(list(matrices), below)
    columns = min(3, max(2, *map(len, rows)))  # four matrices fit where three other panels do
    figure = plt.figure(figsize=(_PANEL * columns, 3.1 * len(rows)), layout="constrained")
    panels: dict[str, Axes] = {}
    # a figure a row: one layout does not keep rows of two and of three panels apart
    for part, names in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        panels |= zip(names, part.subplots(1, len(names), squeeze=False)[0], strict=True)
    for name, matrix in matrices.items():
        _show_matrix(panels[name], name, matrix)
    if spectra:
        _show_spectra(panels["spectra"], of, spectra)
    if result.certificate is not None:
        _show_deviations(panels["fresh"], result.certificate)
    _show_bill(panels["bill"], result.queries, None if result.model is None else result.model.parameters)
    family = "" if result.model is None else f"{result.family}, "
    left_out = f" (first {len(matrices)} of {len(named)} matrices)" if len(named) > len(matrices) else ""
    title = f"{result.status}: {family}{result.size}{left_out}"
    if not result.status.recovered:
        title += "\n" + textwrap.fill(result.reason, _COLUMNS)
    figure.suptitle(title, fontsize=11 if result.status.recovered else 8)
    plt.close(figure)  # returned, so that a notebook shows it once
    return figure


def _in_rows(matrices: list[str], below: list[str]) -> list[list[str]]:
    """Panels in rows: several matrices in one of their own, and no more than two panels beside one."""
    if len(matrices) > 1:
        return [matrices, below]
    panels = [*matrices, *below]
    return [panels[:2], panels[2:]] if len(panels) == _MOST_MATRICES else [panels]


def _matrices_of(model: Model | None) -> dict[str, np.ndarray]:
    """The matrices of the model by name: W of its heads, its network, or else what its file holds."""
    heads = {name: W for name, W, _ in heads_of(model)}
    if model is None or isinstance(model, TokenHeads | SingleHead | MultiHead):
        held = {}
    else:
        held = {
            " ".join(name.split(".")[-2:]): array
            for name, array in model.tensors().items()
            if array.ndim == 2 and (not heads or name.startswith("network"))
        }
    return heads | held


def _spectra_of(model: Model | None) -> tuple[str, dict[str, np.ndarray]]:
    """Of what, and the singular values by name."""
    if isinstance(model, TokenHeads):
        heads = model.heads[:_MOST_MATRICES]
        return "the scores", {f"head {index}": head.table.svd()[1] for index, head in enumerate(heads, 1)}
    of_heads = {name: W for name, W, _ in heads_of(model)}
    matrices = dict(list((of_heads or _matrices_of(model)).items())[:_MOST_MATRICES])
    spectra = {name: np.linalg.svd(matrix, compute_uv=False) for name, matrix in matrices.items()}
    return "W" if of_heads else ", ".join(matrices) if len(matrices) == 1 else "these matrices", spectra


def _show_matrix(axes: Axes, name: str, matrix: np.ndarray) -> None:
    limit = float(np.abs(matrix).max()) or 1.0
    aspect: Literal["equal", "auto"] = "equal" if matrix.shape[0] == matrix.shape[1] else "auto"
    axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest", aspect=aspect)
    axes.set(title=name, xticks=[], yticks=[])
    axes.set_xlabel(f"from −{limit:.2g} (blue) to {limit:.2g} (red)", fontsize=7)


def _show_spectra(axes: Axes, of: str, spectra: dict[str, np.ndarray]) -> None:
    from matplotlib import ticker

    for name, values in spectra.items():
        axes.plot(np.arange(1, len(values) + 1), values, "o-", markersize=3, label=name)
    longest = max(map(len, spectra.values()))
    axes.set(title=f"singular values of {of}", xlabel="in order of size", ylim=(0.0, None))
    axes.set_xlim(0.5, longest + 0.5)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))
    if len(spectra) > 1:
        axes.legend(fontsize=7, frameon=False)


def _show_deviations(axes: Axes, certificate: Certificate) -> None:
    """Each kind of fresh sequence, against what is allowed."""
    kinds = list(certificate.by_kind)
    seen = [max(value, _FLOOR) for value in certificate.by_kind.values()]
    axes.plot(seen, kinds, "o", color="#2563b8", markersize=4, clip_on=False)
    axes.axvline(certificate.allowed, color="#a8201a", linestyle="--", linewidth=1)
    axes.set(title="deviation on fresh queries", xscale="log", xlim=(_FLOOR, 30.0 * certificate.allowed))
    axes.set_xlabel("left edge: within the errors of the answers; dashed: allowed", fontsize=7)
    axes.tick_params(axis="y", labelsize=6)
    axes.set_ylim(len(kinds) - 0.4, -0.6)


def _show_bill(axes: Axes, bill: Bill, parameters: int | None) -> None:
    from matplotlib import ticker

    phases = dict(bill.by_phase)
    bars = axes.barh(list(phases), list(phases.values()), color="#5b7083")
    axes.bar_label(bars, labels=[f" {count:,}" for count in phases.values()], fontsize=7)
    learnt = "" if parameters is None else f"\nfor {parameters:,} parameters"
    axes.set(title=f"{bill.total:,} queries{learnt}")
    axes.margins(x=0.25)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
