"""One file per theorem; this is the table of them, in the order of the page."""

from unsoftmax.lab.experiments import (
    appendix_c,
    low_rank,
    noise,
    proposition_7_1,
    sanity,
    section_4_1,
    theorem_4_1,
    theorem_5_1,
    theorem_6_1,
    theorem_b_1,
)
from unsoftmax.lab.experiments.base import Chart, Check, Experiment, Findings, Line, Table

__all__ = ["EXPERIMENTS", "Chart", "Check", "Experiment", "Findings", "Line", "Table"]

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.key: module.EXPERIMENT
    for module in (
        theorem_4_1,
        section_4_1,
        theorem_5_1,
        theorem_6_1,
        theorem_b_1,
        proposition_7_1,
        appendix_c,
        sanity,
        noise,
        low_rank,
    )
}
