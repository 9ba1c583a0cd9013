"""The second experiment that a public summary lists: Gaussian noise on the answers, margins 0.01, 0.1 and
0.5."""

from __future__ import annotations

import numpy as np

from unsoftmax.lab.experiments import base
from unsoftmax.learners.paper.theorem_6_1 import theorem_6_1
from unsoftmax.ledger import Ledger
from unsoftmax.oracles import Noisy
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = ["EXPERIMENT"]

MARGINS = (0.01, 0.1, 0.5)  # smallest entries |v_i| of the theorem, mu


def _run(fast: bool, seed: int) -> base.Findings:
    d, n_seeds = 4, 10 if fast else 40
    sigmas = [10.0**-k for k in range(4, 9)]
    rows, lines, slopes, scaled = [], [], [], []
    for mu in MARGINS:
        medians = []
        for sigma in sigmas:
            errors, sizes = [], []
            for s in range(n_seeds):
                head = base.head_with_margin(d, 1000 * seed + s, mu=mu)
                found, _ = theorem_6_1(1.0, mu, 0.0).estimate(Ledger(Noisy(as_oracle(head), sigma, seed=s)))
                errors.append(float(np.linalg.norm(found.W - head.W)))
                sizes.append(float(np.sqrt(np.sum(1.0 / head.v**2))))
            medians.append(float(np.median(errors)))
            per = float(np.median(np.array(errors) / (sigma * np.array(sizes))))
            scaled.append(per)
            rows.append((mu, sigma, medians[-1], max(errors), per))
        slopes.append(base.slope(sigmas, medians))
        lines.append(base.Line(f"mu = {mu:g}", tuple(sigmas), tuple(medians)))
    spread = max(scaled) / min(scaled)
    exponent = base.slope(MARGINS, [row[2] for row in rows if row[1] == sigmas[-1]])
    falling = all(
        rows[k][2] > rows[k + len(sigmas)][2] > rows[k + 2 * len(sigmas)][2] for k in range(len(sigmas))
    )
    return base.Findings(
        tables=(
            base.Table(
                "noise",
                (
                    "mu",
                    "sigma",
                    "median Frobenius error of W",
                    "worst",
                    "median of error / (sigma·norm of 1/v)",
                ),
                tuple(rows),
            ),
        ),
        checks=(
            base.Check(
                "the error is linear in sigma",
                f"slopes of the log-log lines {min(slopes):.3f} to {max(slopes):.3f}",
                max(abs(x - 1) for x in slopes) < 0.05,
            ),
            base.Check(
                "and falls with the margin", "at every sigma" if falling else "not at every sigma", falling
            ),
            base.Check(
                "error = O(sigma/|v_i|)",
                f"error / (sigma·norm of 1/v) varies by a factor {spread:.2f} over all margins and sigmas",
                spread < 3.0,
            ),
        ),
        charts=(
            base.Chart("noise", "sigma", "median Frobenius error of W", tuple(lines)),
            base.Chart(
                "noise_over_margin",
                "sigma / mu",
                "median Frobenius error of W",
                tuple(
                    base.Line(line.name, tuple(sigma / mu for sigma in line.x), line.y)
                    for mu, line in zip(MARGINS, lines, strict=True)
                ),
            ),
        ),
        remarks=(
            "The summary expects an error of order sigma/(mu·least entry). Measured, the margin enters at "
            f"most once: the error grows like mu to the power {exponent:.2f}, and over sigma/mu the lines of "
            "all margins nearly fall together.",
        ),
    )


EXPERIMENT = base.Experiment(
    "noise",
    "Robustness to noise",
    "With Gaussian noise sigma on every answer the column-wise estimate errs like sigma/mu.",
    _run,
)
