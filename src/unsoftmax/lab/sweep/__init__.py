"""Grids of recoveries as one tidy table: resumable, on processes or on Dask, the same bits either way."""

from unsoftmax.lab.sweep.cell import Cell, run_cell
from unsoftmax.lab.sweep.driver import Finished, SweepProgress, sweep
from unsoftmax.lab.sweep.plot import Plot, plot_table
from unsoftmax.lab.sweep.spec import Spec, read_spec
from unsoftmax.lab.sweep.table import COLUMNS, read_table, write_table

__all__ = [
    "COLUMNS",
    "Cell",
    "Finished",
    "Plot",
    "Spec",
    "SweepProgress",
    "plot_table",
    "read_spec",
    "read_table",
    "run_cell",
    "sweep",
    "write_table",
]
