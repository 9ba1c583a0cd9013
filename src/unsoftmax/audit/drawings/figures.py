"""Figures of the report as inline SVG: text stays text, colours follow the page (light, dark, print), nothing
is fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.audit.defences.wrappers import DefenceKind
from unsoftmax.audit.drawings.labels import is_far, place_labels

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
_LEAST_CURVE = 3  # points of a curve
_SHORT_LABEL = 24  # characters of a legend of which three columns fit into _WIDTH
_WIDTH = 5.6  # inches: with fonts of 10 points readable on a phone, where the figure is half as wide


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
        bar.ax.tick_params(labelsize=9.5)
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
        axes.legend(fontsize=10, ncols=2, frameon=False, labelcolor=_INK)
    return _svg(figure, "spectra", "singular values of W, by head")


def draw_phases(by_phase: dict[str, int], marks: Sequence[tuple[str, int]]) -> str:
    """Queries by phase as one bar, and beside it the figures to compare with."""
    labels = [f"{phase} ({count:,})" for phase, count in by_phase.items()]
    columns = 3 if max(map(len, labels), default=0) <= _SHORT_LABEL else 2
    figure = _figure(_WIDTH, 1.2 + 0.42 * (1 + len(marks)) + 0.2 * -(-len(by_phase) // columns))
    axes = figure.add_subplot()
    left = 0
    for index, (label, count) in enumerate(zip(labels, by_phase.values(), strict=True)):
        axes.barh(
            0,
            count,
            left=left,
            color=_COLOURS[index % 8],
            alpha=1.0 if index < len(_COLOURS) else 0.45,  # a second round of colours, paler
            height=0.6,
            label=label,
        )
        left += count
    for index, (_, count) in enumerate(marks):
        axes.barh(index + 1, count, color=_FAINT, height=0.6)
        axes.text(count, index + 1, f" {count:,}", va="center", fontsize=10.5, color=_INK)
        left = max(left, count)
    total = sum(by_phase.values())
    axes.text(total, 0, f" {total:,}", va="center", fontsize=10.5, color=_INK)
    axes.set_yticks(range(1 + len(marks)), ["paid", *[name for name, _ in marks]])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(left, 1))
    axes.set_xlabel("queries")
    axes.spines[["left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=columns, fontsize=9.5, frameon=False, labelcolor=_INK)
    return _svg(figure, "phases", "queries by phase, beside parameters and the paper's count")


def draw_curve(queries: Sequence[int], error: Sequence[float], bound: float | None) -> str:
    """Relative error against queries paid. What lies below the certified bound is not known, so the curve
    ends there."""
    figure = _figure(_WIDTH, 3.0)
    axes = figure.add_subplot()
    known = bound is not None and bound > 0.0
    floor = bound if known and bound is not None else 1e-17
    axes.semilogy(
        [*queries, *queries[-1:]] if known else queries,
        np.maximum([*error, floor] if known else error, floor),
        "o-",
        color=_COLOURS[0],
        markersize=3,
        linewidth=1.4,
        label="undetermined part",
    )
    if known and bound is not None:
        axes.axhline(bound, color=_COLOURS[1], linewidth=1.2, linestyle="--")
        axes.plot(
            [queries[-1]], [bound], "D", color=_COLOURS[1], markersize=6, label=f"certified bound {bound:.1e}"
        )
        axes.set_ylim(bottom=bound / 30.0)
    axes.set_xlabel("queries paid, without verification")
    axes.set_ylabel("relative error")
    figure.legend(loc="outside lower center", ncols=2, fontsize=10, frameon=False, labelcolor=_INK)
    return _svg(figure, "curve", "relative error against queries paid")


def draw_defences(rows: Sequence[Any], *, alone: bool = False) -> str:
    """What the attacker is left with against what honest users lose, numbered as in the table. alone: a file
    with colours of its own. Where all defences are bounds on rows, the error is drawn against the bound."""
    if len(bounds := _row_bounds(rows)) >= _LEAST_CURVE:
        drawn = _draw_row_bounds(bounds)
        return _standing_alone(drawn) if alone else drawn
    figure = _figure(_WIDTH, 3.9)
    axes = figure.add_subplot()
    floor = 1e-9
    groups = _grouped(rows, floor)
    if not groups:
        axes.set(xscale="log", yscale="log", ylim=(floor, 3.0))
        text = "no attack known for any of these defences"
        axes.text(0.5, 0.6, text, transform=axes.transAxes, ha="center")
    for stopped, colour, name in (
        (True, _COLOURS[2], "nothing recovered"),
        (False, _COLOURS[0], "recovered"),
    ):
        chosen = [(x, y) for _, x, y, ended in groups if ended is stopped]
        if chosen:
            axes.loglog(*zip(*chosen, strict=True), "o", color=colour, markersize=8, label=name)
    if groups:
        axes.axvline(0.01, color=_FAINT, linewidth=1, linestyle="--")
    axes.set_xlim(floor / 3, 3)
    axes.set_xlabel("what honest users lose, relative (left edge: nothing)")
    axes.set_ylabel("relative error of the attacker")
    if groups:
        figure.legend(loc="outside lower center", ncols=2, fontsize=10, frameon=False, labelcolor=_INK)
    _label_groups(figure, axes, groups)
    drawn = _svg(figure, "defences", "error of the attacker against distortion for honest users, by defence")
    return _standing_alone(drawn) if alone else drawn


def _row_bounds(rows: Sequence[Any]) -> list[tuple[float, float, bool]]:
    """(bound, error of the attacker, whether anything was recovered), ascending; none where a defence is of
    another kind."""
    defended = [row for row in rows if row.parts]
    if any(row.kinds != (DefenceKind.INPUT_BOUND,) for row in defended):
        return []
    found = [(float(row.parts[0][1]), row.leak, row.parameter_error is not None) for row in defended]
    return sorted(found)


def _draw_row_bounds(bounds: list[tuple[float, float, bool]]) -> str:
    """The error that is left to the attacker against the largest norm of a row."""
    figure = _figure(_WIDTH, 3.4)
    axes = figure.add_subplot()
    x, y, recovered = (np.array(column) for column in zip(*bounds, strict=True))
    y = np.maximum(y, EPS)
    axes.loglog(x, y, "-", color=_FAINT, linewidth=1.2)
    for taken, mark, colour, name in (
        (recovered, "o", _COLOURS[0], "recovered"),
        (~recovered, "x", _COLOURS[2], "nothing recovered"),
    ):
        if taken.any():
            axes.loglog(x[taken], y[taken], mark, color=colour, markersize=8, label=name)
    axes.set_xlabel("largest norm of a row that is answered")
    axes.set_ylabel("relative error of the attacker")
    figure.legend(loc="outside lower center", ncols=2, fontsize=10, frameon=False, labelcolor=_INK)
    return _svg(figure, "row-bounds", "error of the attacker against the largest norm of a row")


def _label_groups(figure: Figure, axes: Axes, groups: list[tuple[list[int], float, float, bool]]) -> None:
    """The numbers of each point, beside it, where nothing else is; a thin line leads to those further out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # only once it is drawn are the places of points known
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    axes.set_ylim(axes.get_ylim())
    frame = axes.get_window_extent()
    texts = [_numbers(numbers) for numbers, *_ in groups]
    seen = [axes.transData.transform((x, y)) - (frame.x0, frame.y0) for _, x, y, _ in groups]
    points = [(float(x), float(y)) for x, y in seen]
    # pixels of a font of 11 points: a little more than is drawn, as on a phone
    sizes = [(8.5 * len(text) + 4.0, 15.0) for text in texts]
    places = place_labels(points, sizes, (frame.width, frame.height))
    for text, point, place, size in zip(texts, points, places, sizes, strict=True):
        axes.annotate(
            text,
            (point[0] / frame.width, point[1] / frame.height),
            xycoords="axes fraction",
            xytext=(place[0] / frame.width, place[1] / frame.height),
            textcoords="axes fraction",
            ha="center",
            va="center",
            fontsize=10.5,
            color=_INK,
            arrowprops={"arrowstyle": "-", "color": _FAINT, "linewidth": 0.7}
            if is_far(place, point, size)
            else None,
        )


def _numbers(numbers: list[int]) -> str:
    """Numbers of the table as text, runs of three or more joined.

    >>> _numbers([3, 4, 5, 9])
    '3–5, 9'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)


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
    axes.tick_params(colors=_INK, which="both", labelsize=10.5)
    axes.xaxis.label.set_color(_INK)
    axes.xaxis.label.set_fontsize(11)
    axes.yaxis.label.set_fontsize(11)
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
