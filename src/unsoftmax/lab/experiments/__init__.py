"""One file a theorem; this is the table of them, in the order of the page."""

from unsoftmax.lab.experiments import proposition_7_1, sanity, theorem_4_1
from unsoftmax.lab.experiments.base import Chart, Check, Experiment, Findings, Line, Table

__all__ = ["EXPERIMENTS", "Chart", "Check", "Experiment", "Findings", "Line", "Table"]

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.key: module.EXPERIMENT
    for module in (
        theorem_4_1,
        proposition_7_1,
        sanity,
    )
}
