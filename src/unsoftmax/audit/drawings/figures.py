"""Figures of the report as inline SVG: text stays text, colours follow the page (light, dark, print), nothing
is fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_curve", "draw_defences", "draw_matrices", "draw_phases", "draw_spectra"]

# Stand-ins that become the page's own colours; unlikely enough not to occur in a picture.
_INK, _FAINT = "#010203", "#010204"
_COLOURS = ("#010211", "#010212", "#010213", "#010214", "#010215", "#010216", "#010217", "#010218")
_PAGE = {_INK: "currentColor", _FAINT: "var(--faint)"} | {
    colour: f"var(--series-{i + 1})" for i, colour in enumerate(_COLOURS)
}
_WIDTH = 5.6  # inches: readable on a phone, where the figure is half as wide as on a desk


def draw_matrices(matrices: Sequence[Array], titles: Sequence[str]) -> str:
    """Each W as a picture: red positive, blue negative, white zero; up to twelve."""
    from matplotlib.colors import LinearSegmentedColormap

    shown = list(matrices)[:12]
    columns = min(len(shown), 3 if len(shown) > 2 else 2)
    rows = -(-len(shown) // columns)
    figure = _figure(_WIDTH, (3.9 if columns == 1 else 2.9 if columns == 2 else 2.0) * rows)
    colours = LinearSegmentedColormap.from_list(
        "signed", ["#1f4e9e", "#7fb0e6", "#f7f7f7", "#f0a07a", "#a8201a"]
    )
    for index, (matrix, title) in enumerate(zip(shown, titles, strict=False)):
        axes = figure.add_subplot(rows, columns, index + 1)
        limit = float(np.abs(matrix).max()) or 1.0
        image = axes.imshow(matrix, cmap=colours, vmin=-limit, vmax=limit, interpolation="nearest")
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.ax.tick_params(labelsize=8)
    return _svg(figure, "matrices", f"W as a picture, {len(shown)} of {len(matrices)} heads")


def draw_spectra(spectra: Sequence[Array], names: Sequence[str]) -> str:
    """Singular values of each W, largest first."""
    from matplotlib.ticker import MaxNLocator

    figure = _figure(_WIDTH, 3.0)
    axes = figure.add_subplot()
    for index, values in enumerate(spectra):
        visible = np.asarray(values)[np.asarray(values) > 0]
        axes.plot(
            np.arange(1, len(visible) + 1),
            visible,
            "o-",
            color=_COLOURS[index % 8],
            markersize=3.5,
            linewidth=1.2,
            label=names[index],
        )
    everything = np.concatenate([np.asarray(values) for values in spectra])
    if len(everything) and everything.max() > 30.0 * everything[everything > 0].min(initial=np.inf):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
    axes.set_xlabel("singular value, by size")
    axes.set_ylabel("size")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if 1 < len(spectra) <= 12:
        axes.legend(fontsize=8, ncols=2, frameon=False, labelcolor=_INK)
    return _svg(figure, "spectra", "singular values of W, by head")


def draw_phases(by_phase: dict[str, int], marks: Sequence[tuple[str, int]]) -> str:
    """Queries by phase as one bar, and beside it the figures to compare with."""
    figure = _figure(_WIDTH, 1.5 + 0.42 * (1 + len(marks)))
    axes = figure.add_subplot()
    left = 0
    for index, (phase, count) in enumerate(by_phase.items()):
        axes.barh(0, count, left=left, color=_COLOURS[index % 8], height=0.6, label=f"{phase} ({count:,})")
        left += count
    for index, (_, count) in enumerate(marks):
        axes.barh(index + 1, count, color=_FAINT, height=0.6)
        axes.text(count, index + 1, f" {count:,}", va="center", fontsize=9, color=_INK)
        left = max(left, count)
    total = sum(by_phase.values())
    axes.text(total, 0, f" {total:,}", va="center", fontsize=9, color=_INK)
    axes.set_yticks(range(1 + len(marks)), ["paid", *[name for name, _ in marks]])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(left, 1))
    axes.set_xlabel("queries")
    axes.spines[["left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.4, -0.32 if marks else -0.5),
        ncols=3,
        fontsize=8,
        frameon=False,
        labelcolor=_INK,
    )
    return _svg(figure, "phases", "queries by phase, beside parameters and the paper's count")


def draw_curve(queries: Sequence[int], error: Sequence[float], bound: float | None) -> str:
    """Relative error against queries paid, with the certified bound."""
    figure = _figure(_WIDTH, 3.0)
    axes = figure.add_subplot()
    axes.semilogy(
        queries,
        np.maximum(error, 1e-17),
        "o-",
        color=_COLOURS[0],
        markersize=3,
        linewidth=1.4,
        label="undetermined part",
    )
    if bound is not None and bound > 0.0:
        axes.axhline(
            bound, color=_COLOURS[1], linewidth=1.2, linestyle="--", label=f"certified bound {bound:.1e}"
        )
    axes.set_xlabel("queries paid, without verification")
    axes.set_ylabel("relative error")
    axes.legend(fontsize=8, frameon=False, labelcolor=_INK, loc="center left")
    return _svg(figure, "curve", "relative error against queries paid")


def draw_defences(rows: Sequence[Any], *, alone: bool = False) -> str:
    """What the attacker is left with against what honest users lose, numbered as in the table. alone: a file
    with colours of its own."""
    figure = _figure(_WIDTH, 3.9)
    axes = figure.add_subplot()
    floor = 1e-9
    for numbers, x, y, stopped in _grouped(rows, floor):
        axes.loglog(x, y, "o", color=_COLOURS[2] if stopped else _COLOURS[0], markersize=9)
        text = ", ".join(map(str, numbers))
        right = x < 1e-2
        axes.annotate(
            text,
            (x, y),
            xytext=(7 if right else -7, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            color=_INK,
        )
    axes.axvline(0.01, color=_FAINT, linewidth=1, linestyle="--")
    axes.set_xlim(floor / 3, 3)
    axes.set_xlabel("what honest users lose, relative (left edge: nothing)")
    axes.set_ylabel("relative error of the attacker")
    drawn = _svg(figure, "defences", "error of the attacker against distortion for honest users, by defence")
    return _standing_alone(drawn) if alone else drawn


def _standing_alone(drawn: str) -> str:
    """An SVG for a file: the colours that a page would give."""
    style = (
        "svg { color: #1b2330; background: #ffffff; --faint: #b9c0c9; --series-1: #2563b8; --series-3: "
        "#2a9d6f; }"
    )
    head, rest = drawn.split(">", 1)
    return f"{head}><style>{style}</style>{rest}\n"


def _grouped(rows: Sequence[Any], floor: float) -> list[tuple[list[int], float, float, bool]]:
    """Points of the table, those that would cover one another as one: their numbers, place, and whether the
    attack was stopped."""
    groups: list[tuple[list[int], float, float, bool]] = []
    for number, row in enumerate(rows, 1):
        if not row.attacked:
            continue
        x, y, stopped = (
            max(row.distortion + row.refused, floor),
            max(row.leak, 1e-17),
            row.parameter_error is None,
        )
        for numbers, gx, gy, _ in groups:
            if abs(np.log10(x / gx)) < 0.35 and abs(np.log10(y / gy)) < 0.8:
                numbers.append(number)
                break
        else:
            groups.append(([number], x, y, stopped))
    return groups


def _unique_ids(body: str, name: str) -> str:
    """Ids of this figure alone; equal pictures, such as colour bars, would share one."""
    seen: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        count = seen[match[1]] = seen.get(match[1], 0) + 1
        return f'id="{name}-{match[1]}"' if count == 1 else f'id="{name}-{match[1]}-{count}"'

    return re.sub(r'\bid="([^"]+)"', renamed, body)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", edgecolor="none")


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(_FAINT)
    axes.tick_params(colors=_INK, which="both", labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.title.set_color(_INK)
    axes.set_facecolor("none")


def _svg(figure: Figure, name: str, text: str) -> str:
    """The figure as an SVG element for a page: no fixed size, the page's colours, ids of its own."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    for axes in figure.axes:
        _style(axes)
    buffer = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    body = buffer.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for stand_in, colour in _PAGE.items():
        body = body.replace(stand_in, colour)
    body = _unique_ids(body, name)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"font: ([^;\"]*?)'[^\"]*?sans-serif", r"font: \1sans-serif", body)
    opening = re.search(r'viewBox="([^"]+)"', body)
    assert opening is not None
    head = (
        f'<svg class="figure" viewBox="{opening.group(1)}" role="img" aria-label="{text}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + body[body.index(">") + 1 :].strip()
