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
    figure = Figure(figsize=(7, 4.4), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    places, ticks = _places({row[plot.x] for row in table})
    for index, name in enumerate(sorted(lines, key=lambda key: tuple(map(_order, key)))):
        points = lines[name]
        xs = sorted(points, key=lambda x: places[x])
        middle = [_middle(points[x], mean=plot.y in _MEANS) for x in xs]
        (line,) = axes.plot(
            [places[x] for x in xs],
            middle,
            marker="o",
            markersize=4,
            label=", ".join(
                f"{axis} = {value}" for axis, value in zip(_axes(plot, table), name, strict=True)
            ),
        )
        for x, failed in lost.get(name, {}).items():
            _mark_failures(axes, places[x], index, f"{failed} failed", line.get_color())
        if plot.y not in _MEANS:
            low, high = [min(points[x]) for x in xs], [max(points[x]) for x in xs]
            axes.fill_between([places[x] for x in xs], low, high, alpha=0.15, color=line.get_color())
    positive = all(value > 0 for points in lines.values() for values in points.values() for value in values)
    if plot.y not in _MEANS and positive:
        axes.set_yscale("log")
    if ticks is None:
        if all(place > 0 for place in places.values()) and max(places.values()) > 8 * min(places.values()):
            axes.set_xscale("log")
        if len(places) <= _FEW:  # the values of the grid, not round numbers between them
            axes.set_xticks(sorted(places.values()), [f"{place:g}" for place in sorted(places.values())])
            axes.set_xticks([], minor=True)
    else:
        axes.set_xticks(range(len(ticks)), ticks, rotation=20)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(f"{plot.y} ({'mean' if plot.y in _MEANS else 'median, and range'})")
    axes.grid(alpha=0.3)
    if _axes(plot, table):
        axes.legend(fontsize=8)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return write_atomically(Path(path), content.getvalue())


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


def _mark_failures(axes: Any, place: float, line: int, text: str, colour: Any) -> None:
    """A word at the lower edge, the lines above one another."""
    at = (place, 0.02 + 0.05 * line)
    style = {"fontsize": 7, "color": colour, "ha": "center", "va": "bottom"}
    axes.text(*at, f"× {text}", transform=axes.get_xaxis_transform(), **style)


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
