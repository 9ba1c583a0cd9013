"""The readout v and the constant c, one file per kind of answers: exact, within a tolerance, rounded, short
floats, labels."""

from unsoftmax.learners.readouts.exact import read_constant, read_values
from unsoftmax.learners.readouts.labels import read_labels
from unsoftmax.learners.readouts.long_rows import read_long_rows
from unsoftmax.learners.readouts.short_floats import read_short_floats
from unsoftmax.learners.readouts.steps import read_steps

__all__ = ["read_constant", "read_labels", "read_long_rows", "read_short_floats", "read_steps", "read_values"]
