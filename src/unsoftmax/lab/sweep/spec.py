"""SPEC.toml: which cells, and which plots of the table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.lab.sweep.cell import AXES, Cell
from unsoftmax.lab.sweep.plot import Plot
from unsoftmax.text_files import parse_toml, read_small_text

__all__ = ["Spec", "parse_spec", "read_spec"]

_TEXT = ("family", "noise", "defence", "learner")
_WHOLE = ("d", "r", "heads", "neurons", "budget", "seed")
_REAL = ("scale", "input_bound")
_ABSENT = "default"  # how TOML, which has no null, writes None
_MOST_CELLS = 10_000_000  # at 200 bytes and more for each, 2 GB of memory for the list alone


@dataclass(frozen=True)
class Spec:
    """A sweep: its name, its cells without repetition in the order of the file, its plots, and the text that
    it was read from."""

    name: str
    cells: tuple[Cell, ...]
    plots: tuple[Plot, ...]
    text: str


def read_spec(path: str | Path) -> Spec:
    """The sweep that a TOML file describes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "widths.toml")
    >>> _ = path.write_text('[[grid]]\\nd = [4, 8]\\nseed = {first = 0, count = 3}\\n')
    >>> spec = read_spec(path); folder.cleanup()
    >>> spec.name, len(spec.cells)
    ('widths', 6)
    """
    return parse_spec(read_small_text(path, "sweep"), Path(path).stem)


def parse_spec(text: str, name: str) -> Spec:
    """The same from the text itself.

    >>> parse_spec('[grid]\\nr = [2, "default"]', "ranks").cells[1].r is None
    True
    """
    content = parse_toml(text, "sweep")
    unknown = sorted(set(content) - {"name", "grid", "plot"})
    if unknown:
        raise UsageError(f"a sweep has name, [[grid]] and [[plot]], not {unknown[0]!r}")
    grids = content.get("grid", [])
    grids = [grids] if isinstance(grids, dict) else grids
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise UsageError("a sweep needs at least one [[grid]] with its axes, for instance d = [8, 16]")
    cells: dict[Cell, None] = {}
    for grid in grids:
        for cell in _product(grid):
            cells.setdefault(cell.normal())
    plots = tuple(Plot.parse(plot) for plot in content.get("plot", []))
    return Spec(str(content.get("name", name)), tuple(cells), plots, text)


def _product(grid: dict[str, Any]) -> list[Cell]:
    axes = {axis: _values(axis, given) for axis, given in grid.items()}
    n_cells = 1
    for values in axes.values():
        n_cells *= len(values)
    if n_cells > _MOST_CELLS:
        raise UsageError(f"a grid of {n_cells:,} cells; at most {_MOST_CELLS:,} are taken, so split it")
    cells = []
    for point in itertools.product(*axes.values()):
        cell = Cell(**dict(zip(axes, point, strict=True)))
        cell.check()
        cells.append(cell)
    return cells


def _values(axis: str, given: Any) -> list[Any]:
    """The values of an axis: a list, one value, or {first, count} for seeds."""
    if axis not in AXES:
        raise UsageError(f"there is no axis {axis!r}; a grid has {', '.join(AXES)}")
    if isinstance(given, dict):
        if axis != "seed" or set(given) - {"first", "count"} or not isinstance(given.get("count"), int):
            raise UsageError(
                f"{axis} = {given!r} is not a list of values; only seed takes {{first = 0, count = 20}}"
            )
        first, count = _value(axis, given.get("first", 0)), given["count"]
        if not 1 <= count <= _MOST_CELLS:
            raise UsageError(f"seed has {count:,} values; from 1 to {_MOST_CELLS:,} are taken, so split it")
        return list(range(first, first + count))
    values = given if isinstance(given, list) else [given]
    if not values:
        raise UsageError(f"{axis} = [] leaves no cell; give at least one value")
    return [_value(axis, value) for value in values]


def _value(axis: str, value: Any) -> Any:
    if value == _ABSENT and axis not in (*_TEXT, "d", "seed", "scale", "biases"):
        return None
    if axis in _TEXT and isinstance(value, str):
        return value
    if axis == "biases" and isinstance(value, bool):
        return value
    if not isinstance(value, bool):
        if axis in _WHOLE and isinstance(value, int) and value >= (1 if axis == "d" else 0):
            return value
        if axis in _REAL and isinstance(value, int | float):
            return float(value)
    kind = (
        "a text"
        if axis in _TEXT
        else "true or false"
        if axis == "biases"
        else "a whole number"
        if axis in _WHOLE
        else "a number"
    )
    raise UsageError(f"{axis} = {value!r}: {axis} must be {kind}")
