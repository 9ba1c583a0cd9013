"""The table: one row per cell, CSV by default, Parquet where pyarrow is installed. Numbers keep every bit."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.lab.files import write_atomically
from unsoftmax.lab.sweep.cell import AXES, RESULTS

__all__ = ["COLUMNS", "needs_pyarrow", "read_table", "write_table"]

COLUMNS = ("cell", *AXES, *RESULTS)
_INTEGERS = {
    "d",
    "r",
    "heads",
    "neurons",
    "budget",
    "seed",
    "parameters",
    "queries",
    "learning",
    "verification",
}
_FLOATS = {"scale", "input_bound", "error", "error_bound", "max_deviation"}
_BOOLEANS = {"biases", "bound_holds"}


def write_table(rows: Iterable[dict[str, Any]], path: str | Path) -> Path:
    """Writes rows to a .csv or .parquet file, whole or not at all.

    >>> import tempfile
    >>> from unsoftmax.lab.sweep.cell import Cell, run_cell
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [run_cell(Cell(d=3))]
    ...     read_table(write_table(rows, Path(folder, "table.csv"))) == rows
    True
    """
    path = Path(path)
    rows = list(rows)
    if path.suffix == ".parquet":
        arrow, parquet = needs_pyarrow()
        buffer = io.BytesIO()
        arrays = {
            name: arrow.array([row[name] for row in rows], type=_arrow_type(arrow, name)) for name in COLUMNS
        }
        parquet.write_table(arrow.table(arrays), buffer)
        return write_atomically(path, buffer.getvalue())
    if path.suffix != ".csv":
        raise UsageError(f"a table is a .csv or a .parquet file, not {path.name}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            [
                ""
                if row[name] is None
                else repr(row[name])
                if isinstance(row[name], float)
                else str(row[name])
                for name in COLUMNS
            ]
        )
    return write_atomically(path, text.getvalue().encode())


def read_table(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a table that `write_table` wrote, with their types."""
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            return list(needs_pyarrow()[1].read_table(path).to_pylist())
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or tuple(reader.fieldnames) != COLUMNS:
                raise UsageError(
                    f"{path} is not a table of a sweep; its first line should begin with "
                    f"{', '.join(COLUMNS[:3])}"
                )
            return [{name: _typed(name, text) for name, text in row.items()} for row in reader]
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the table {path}: {error}; pass a table.csv or table.parquet that a sweep wrote"
        ) from error


def _typed(name: str, text: str) -> Any:
    if text == "":
        return None
    if name in _INTEGERS:
        return int(text)
    if name in _FLOATS:
        return float(text)
    return text == "True" if name in _BOOLEANS else text


def needs_pyarrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet), or `UsageError` where it is not installed."""
    try:
        import pyarrow  # type: ignore[import-not-found]
        import pyarrow.parquet  # type: ignore[import-not-found]
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed; install it, or write a .csv"
        ) from None
    return pyarrow, pyarrow.parquet


def _arrow_type(arrow: Any, name: str) -> Any:
    if name in _INTEGERS:
        return arrow.int64()
    if name in _FLOATS:
        return arrow.float64()
    return arrow.bool_() if name in _BOOLEANS else arrow.string()
