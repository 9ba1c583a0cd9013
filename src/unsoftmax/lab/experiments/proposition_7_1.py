"""Proposition 7.1: with several heads, different parameters can be one function; and what is unique
nevertheless."""

from __future__ import annotations

import numpy as np

from unsoftmax.lab.experiments.base import Check, Experiment, Findings, Table
from unsoftmax.models import MultiHead, equivalent, witness_pair
from unsoftmax.recovery.recover import recover

__all__ = ["EXPERIMENT"]


def _run(fast: bool, seed: int) -> Findings:
    n_seeds = 3 if fast else 10
    rows = []
    for d, heads in ((4, 2), (8, 3)) if fast else ((4, 2), (8, 3), (16, 4), (32, 8)):
        gaps, spread, same, recovered = [], [], 0, 0
        for s in range(n_seeds):
            f, g = witness_pair(d, heads, seed=1000 * seed + s)
            rng = np.random.default_rng([seed, s, d])
            sequences = [rng.standard_normal((64, n, d)) * 10.0 ** rng.uniform(-1, 1) for n in (1, 2, 3, 8)]
            gaps.append(max(float(np.abs(f(X) - g(X)).max() / np.abs(f(X)).max()) for X in sequences))
            spread.append(_parameter_gap(f, g))
            same += bool(equivalent(f, g))
            result = recover(f, seed=s)
            recovered += result.model is not None and _as_heads(result.model).distance(g) < 1e-7
        rows.append(
            (d, heads, n_seeds, max(gaps), min(spread), f"{same} of {n_seeds}", f"{recovered} of {n_seeds}")
        )
    columns = (
        "d",
        "heads",
        "pairs",
        "worst deviation of answers",
        "least distance of v",
        "equivalent() says yes",
        "recover() finds the common form",
    )
    one_function = max(row[3] for row in rows) < 1e-12
    different = min(row[4] for row in rows) > 1e-3
    decided = all(row[5] == row[6] == f"{row[2]} of {row[2]}" for row in rows)
    return Findings(
        tables=(Table("witness_pairs", columns, tuple(rows)),),
        checks=(
            Check(
                "a pair of different parameters",
                f"their v differ by at least {min(row[4] for row in rows):.2g}",
                different,
            ),
            Check(
                "and one function",
                f"answers deviate by at most {max(row[3] for row in rows):.1e} relative",
                one_function,
            ),
            Check(
                "(ours) the canonical form is unique, and is what recover returns",
                "for every pair" if decided else "not for every pair",
                decided,
            ),
        ),
        remarks=(
            "arXiv 2601.16873 leaves open whether equality of two multi-head functions can be decided. It "
            "can: heads with equal W merge, heads with v = 0 vanish, and what remains is unique up to order "
            "(docs/theory-map.md).",
        ),
    )


def _parameter_gap(f: MultiHead, g: MultiHead) -> float:
    """How far the v of g's heads stay from the v of f's first head, which no relabelling of heads explains
    away."""
    v = f.heads[0].v
    return min(float(np.linalg.norm(head.v - v) / np.linalg.norm(v)) for head in g.heads)


def _as_heads(model: object) -> MultiHead:
    return model if isinstance(model, MultiHead) else MultiHead([model])  # type: ignore[list-item]


EXPERIMENT = Experiment(
    "7.1",
    "Proposition 7.1: several heads are not identifiable in general",
    "There are different multi-head parameters with the same function: heads of equal W show only the sum "
    "of their v.",
    _run,
)
