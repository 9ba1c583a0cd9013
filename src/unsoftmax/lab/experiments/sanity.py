"""The first experiment that a public summary of the paper lists: d up to 8, a margin on v, Gaussian probes,
errors below 1e-10."""

from __future__ import annotations

import numpy as np

from unsoftmax.lab.experiments.base import Check, Experiment, Findings, Table, head_with_margin, learn_raw
from unsoftmax.learners.paper.theorem_4_1 import theorem_4_1

__all__ = ["EXPERIMENT"]


def _run(fast: bool, seed: int) -> Findings:
    n_seeds = 20 if fast else 100
    rows = []
    for d in range(1, 9):
        errors_W, errors_v = [], []
        for s in range(n_seeds):
            head = head_with_margin(d, 1000 * seed + s, mu=0.1)
            found, _, _ = learn_raw(theorem_4_1(), head, s)
            errors_W.append(float(np.linalg.norm(found.W - head.W)))
            errors_v.append(float(np.linalg.norm(found.v - head.v)))
        rows.append((d, n_seeds, float(np.median(errors_W)), max(errors_W), max(errors_v)))
    within = all(max(row[3], row[4]) < 1e-10 for row in rows)
    return Findings(
        tables=(
            Table(
                "sanity",
                ("d", "seeds", "median Frobenius error of W", "worst error of W", "worst error of v"),
                tuple(rows),
            ),
        ),
        checks=(
            Check(
                "errors of W and v below 1e-10",
                f"worst {max(max(row[3], row[4]) for row in rows):.1e}",
                within,
            ),
        ),
    )


EXPERIMENT = Experiment(
    "sanity",
    "Sanity check at d ≤ 8",
    "|v| = 1 and |v_i| ≥ 0.1: the column-wise algorithm with Gaussian probes gives W and v to below 1e-10.",
    _run,
)
