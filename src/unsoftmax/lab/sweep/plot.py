"""Pictures of a table: the median of a column over an axis, a line for each family and each value of another
axis, with the range of all seeds behind it. Cells that failed are counted below, never left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.lab.files import write_atomically
from unsoftmax.outcomes import Status

__all__ = ["MEASURES", "NothingToDraw", "Plot", "plot_table"]

MEASURES: dict[
    str, Callable[[dict[str, Any]], float | None]
] = {  # what may be drawn, from a row; None where the row has no such figure
    "error": lambda row: row["error"],
    "error_bound": lambda row: row["error_bound"],
    "queries": lambda row: row["queries"],
    "learning": lambda row: row["learning"],
    "queries_per_parameter": lambda row: (
        None if row["learning"] is None or not row["parameters"] else row["learning"] / row["parameters"]
    ),
    "recovered": lambda row: float(row["status"] in Status.__members__ and Status[row["status"]].recovered),
    "max_deviation": lambda row: row["max_deviation"],
}
_FEW = 8  # labels that fit under an axis
_LEVEL = 4  # names that fit there without being turned
_MEANS = {"recovered"}  # rates are averaged; everything else is shown by its median


class NothingToDraw(UsageError):
    """No row has the figure that was asked for."""


@dataclass(frozen=True)
class Plot:
    """`y` against the axis `x`, one line for each value of the axis `by`.

    >>> Plot("d", "error", by="learner").file_name
    'error-over-d-by-learner.png'
    """

    x: str
    y: str = "error"
    by: str | None = None

    def __post_init__(self) -> None:
        from unsoftmax.lab.sweep.cell import AXES

        if self.y not in MEASURES:
            raise UsageError(f"a plot shows {', '.join(MEASURES)}, not y = {self.y!r}")
        for axis in (self.x, self.by):
            if axis is not None and axis not in AXES:
                raise UsageError(f"there is no axis {axis!r}; a table has {', '.join(AXES)}")

    @classmethod
    def parse(cls, given: Any) -> Plot:
        """From a [[plot]] of a sweep's TOML."""
        if (
            not isinstance(given, dict)
            or "x" not in given
            or set(given) - {field.name for field in fields(cls)}
        ):
            raise UsageError(
                f"a [[plot]] has x, y and by, such as x = 'd', y = 'error', by = 'learner', not {given!r}"
            )
        return cls(**given)

    @property
    def file_name(self) -> str:
        """Where it goes."""
        return f"{self.y}-over-{self.x}{'' if self.by is None else f'-by-{self.by}'}.png"


def plot_table(rows: Iterable[dict[str, Any]], plot: Plot, path: str | Path) -> Path:
    """Draws the plot as a PNG; the same rows give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    table = list(rows)
    lines, lost = _lines(table, plot)
    if not lines:
        raise NothingToDraw(f"no row of the table has a figure for {plot.y!r}; choose another y")
    figure = Figure(figsize=(7, 4.8), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    # a line a row of the strip below: failures never lie on figures
    heights = [10.0, 0.7 * len(lost)] if lost else [10.0]
    axes, *below = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    places, ticks = _places({row[plot.x] for row in table})
    colours = {}
    for name in sorted(lines, key=_order_of_line):
        colours[name] = _draw_line(axes, lines[name], places, plot, _named(name, plot, table))
    for strip in below:
        _show_failures(strip, lost, places, colours)
    positive = all(value > 0 for points in lines.values() for values in points.values() for value in values)
    if plot.y not in _MEANS and positive:
        axes.set_yscale("log")
    lowest = below[-1] if below else axes
    _set_places(lowest, places, ticks)
    lowest.set_xlabel(plot.x)
    axes.set_ylabel(f"{plot.y} ({'mean' if plot.y in _MEANS else 'median, and range'})")
    axes.grid(alpha=0.3)
    if _axes(plot, table):
        figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return write_atomically(Path(path), content.getvalue())


def _draw_line(
    axes: Any, points: dict[Any, list[float]], places: dict[Any, float], plot: Plot, label: str
) -> Any:
    """Medians with the range of all seeds behind them, or means; gives the colour."""
    mean = plot.y in _MEANS
    xs = sorted(points, key=lambda x: places[x])
    at = [places[x] for x in xs]
    middle = [_middle(points[x], mean=mean) for x in xs]
    (line,) = axes.plot(at, middle, marker="o", markersize=4, label=label)
    if not mean:
        low, high = [min(points[x]) for x in xs], [max(points[x]) for x in xs]
        axes.fill_between(at, low, high, alpha=0.15, color=line.get_color())
    return line.get_color()


def _set_places(axes: Any, places: dict[Any, float], ticks: list[str] | None) -> None:
    """The values of the grid under the axis; in logarithms where they span much."""
    if ticks is not None:
        axes.set_xticks(range(len(ticks)), ticks, rotation=20 if len(ticks) > _LEVEL else 0)
        axes.margins(x=0.1)
        return
    if all(place > 0 for place in places.values()) and max(places.values()) > 8 * min(places.values()):
        axes.set_xscale("log")
    if len(places) <= _FEW:  # the values of the grid, not round numbers between them
        axes.set_xticks(sorted(places.values()), [f"{place:g}" for place in sorted(places.values())])
        axes.set_xticks([], minor=True)


Key = tuple[Any, ...]  # the values that tell a line from the others


def _axes(plot: Plot, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """What tells lines apart: the axis asked for, and the family wherever there are several."""
    several = len({row.get("family") for row in rows}) > 1 and plot.x != "family"
    by = () if plot.by is None else (plot.by,)
    return (*by, "family") if several and plot.by != "family" else by


def _lines(
    rows: list[dict[str, Any]], plot: Plot
) -> tuple[dict[Key, dict[Any, list[float]]], dict[Key, dict[Any, int]]]:
    """The figures of each line by place, and how many cells have none because they failed."""
    lines: dict[Key, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    lost: dict[Key, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
    names = _axes(plot, rows)
    for row in rows:
        key, x = tuple(row[name] for name in names), row[plot.x]
        figure = MEASURES[plot.y](row)
        if plot.y not in _MEANS and not MEASURES["recovered"](row):
            lost[key][x] += 1
        elif figure is not None:
            lines[key][x].append(float(figure))
    for key in lost:
        lines[key]  # a line of failures alone has its place in the legend too
    return (lines, lost) if any(lines.values()) else ({}, {})


def _show_failures(
    strip: Any, lost: dict[Key, dict[Any, int]], places: dict[Any, float], colours: dict[Key, Any]
) -> None:
    """How many cells failed at each place, a line for each line above."""
    names = sorted(lost, key=_order_of_line)
    for row, name in enumerate(names):
        for x, failed in lost[name].items():
            style = {"fontsize": 8, "color": colours[name], "ha": "center", "va": "center"}
            strip.text(places[x], row, f"× {failed}", **style)
    strip.set(ylim=(len(names) - 0.5, -0.5), yticks=[])
    strip.set_ylabel("failed", rotation=0, ha="right", va="center")


def _named(name: Key, plot: Plot, rows: list[dict[str, Any]]) -> str:
    """A line in the legend."""
    return ", ".join(f"{axis} = {value}" for axis, value in zip(_axes(plot, rows), name, strict=True))


def _order_of_line(name: Key) -> tuple[tuple[int, float, str], ...]:
    return tuple(map(_order, name))


def _middle(values: list[float], *, mean: bool) -> float:
    if mean:
        return sum(values) / len(values)
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else 0.5 * (values[half - 1] + values[half])


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _places(values: set[Any]) -> tuple[dict[Any, float], list[str] | None]:
    """Where each value of the x axis stands: numbers at themselves ('tolerance=1e-6' at 1e-6), anything else
    in order, with its name."""
    numbers: dict[Any, float] = {}
    kinds = set()
    for value in values:
        kind, _, text = str(value).rpartition("=")
        try:
            numbers[value] = float(text)
        except ValueError:
            break
        kinds.add(kind)
    if len(numbers) == len(values) and len(kinds) == 1:
        return numbers, None
    ordered = sorted(values, key=_order)
    return {value: float(place) for place, value in enumerate(ordered)}, [str(value) for value in ordered]
