"""Ours beside the paper's algorithms to the letter, on the same targets: queries, error, time and memory,
within one run.

    python -m benchmarks.literal            # widths up to 64
    python -m benchmarks.literal --fast

Each method runs in a process of its own, and the terms are printed above the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import unsoftmax
from benchmarks._alone import alone, report
from unsoftmax import (
    Labels,
    MultiHead,
    SingleHead,
    WithinTolerance,
    as_oracle,
    random_single_head,
    random_transformer,
    theorem_4_1,
    theorem_5_1,
)
from unsoftmax.lab.experiments.base import head_with_margin, learn_raw
from unsoftmax.learners.paper.appendix_c import appendix_c
from unsoftmax.learners.paper.theorem_6_1 import theorem_6_1
from unsoftmax.learners.paper.theorem_b_1 import theorem_b_1
from unsoftmax.learners.transformer import TransformerLearner

TERMS = (
    "Medians over {n} targets; queries, time and memory of the literal algorithm as multiples of ours. The "
    "theorems are told their constants (rank, norm, margin), ours is not; our time includes finding out the "
    "family, the certificate and the error bound, which the literal algorithms do not have. Time is without "
    "loading code; memory is the peak of the process, libraries included. Behind labels the error is that "
    "of W and the direction of v. A blank error: the run stopped without a model."
)
TAU, BOUND, EPS, MU = 1e-4, 100.0, 0.025, 0.3


@dataclass(frozen=True)
class Duel:
    """A setting: its hidden model, what its answers go through, the literal learner, options of ours,
    widths."""

    title: str
    model: Callable[[int, int], Any]
    learner: Callable[[Any], Any]
    widths: tuple[int, ...]
    around: Callable[[Any], Any] = as_oracle
    options: tuple[tuple[str, Any], ...] = ()


def orthogonal_heads(d: int, seed: int) -> MultiHead:
    """Two heads in hidden orthogonal subspaces of half the width."""
    rng = np.random.default_rng([seed, d])
    halves = np.split(np.linalg.qr(rng.standard_normal((d, d)))[0], 2, axis=1)
    return MultiHead(
        [
            SingleHead(
                U @ rng.standard_normal((d // 2, d // 2)) @ U.T / np.sqrt(d), U @ rng.standard_normal(d // 2)
            )
            for U in halves
        ]
    )


DUELS = {
    "4.1": Duel(
        "Theorem 4.1, exact answers",
        lambda d, seed: random_single_head(d, seed=seed),
        lambda model: theorem_4_1(),
        (16, 64),
    ),
    "5.1": Duel(
        "Theorem 5.1, rank 2, C = 3",
        lambda d, seed: random_single_head(d, 2, seed=seed),
        lambda model: theorem_5_1(2, 3.0),
        (16, 64),
    ),
    "6.1": Duel(
        f"Theorem 6.1, answers within {TAU:g}, rows of norm ≤ {BOUND:g} for ours",
        lambda d, seed: head_with_margin(d, seed, mu=0.1),
        lambda model: theorem_6_1(1.0, 0.1, TAU),
        (8, 16),
        lambda model: WithinTolerance(as_oracle(model), TAU),
        (("tolerance", TAU), ("input_bound", BOUND)),
    ),
    "B.1": Duel(
        f"Theorem B.1, labels, eps = {EPS:g}",
        lambda d, seed: head_with_margin(d, seed, mu=MU),
        lambda model: theorem_b_1(1.0, MU, EPS),
        (4, 8),
        lambda model: Labels(as_oracle(model)),
    ),
    "section-4.1": Duel(
        "Section 4.1, Transformer with as many neurons as columns, antisymmetric pairs",
        lambda d, seed: random_transformer(d, d, seed=seed),
        lambda model: TransformerLearner(meter="antisymmetric"),
        (8, 32),
    ),
    "C": Duel(
        "Appendix C, hidden orthogonal subspaces, by Hessians",
        orthogonal_heads,
        lambda model: appendix_c(),
        (4, 8),
    ),
}


def run(key: str, method: str, d: int, seed: int) -> dict[str, Any]:
    """Queries to learn, and the error; the literal algorithm's own result, which `recover` might refuse."""
    duel = DUELS[key]
    model = duel.model(d, seed)
    oracle = duel.around(model)
    if method == "literal":
        learner = duel.learner(model)
        if key in ("6.1", "B.1"):
            ledger = unsoftmax.Ledger(oracle)
            estimate = learner.estimate(ledger, *([np.random.default_rng(seed)] if key == "B.1" else []))
            found, queries = estimate[0] if key == "6.1" else estimate, ledger.bill.total
        else:
            found, queries, _ = learn_raw(learner, oracle, seed)
    else:
        result = unsoftmax.recover(oracle, seed=seed, **dict(duel.options))
        found, queries = result.model, result.queries.learning
    if found is not None and key == "B.1":
        found = SingleHead(found.matrix, found.v / np.linalg.norm(found.v))
    return {"queries": queries, "error": None if found is None else float(model.distance(found))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        return report(lambda: run(job["key"], job["method"], 4, 0), lambda: run(**job))
    n = 1 if options.fast else options.seeds
    print(TERMS.format(n=n) + "\n")
    print(
        "| statement | d | ours: queries | ours: error | literal: queries | literal: error | queries / ours "
        "| time / ours | memory / ours |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for key, duel in DUELS.items():
        for d in duel.widths[:1] if options.fast else duel.widths:
            ours, literal = (
                [alone(__spec__.name, {"key": key, "method": m, "d": d, "seed": s}) for s in range(n)]
                for m in ("ours", "literal")
            )
            ratios = [
                np.median([b[name] / a[name] for a, b in zip(ours, literal, strict=True)])
                for name in ("queries", "seconds", "megabytes")
            ]
            errors = [
                "" if None in found else f"{np.median(found):.0e}"
                for found in ([run["error"] for run in runs] for runs in (ours, literal))
            ]
            queries = [f"{np.median([run['queries'] for run in runs]):,.0f}" for runs in (ours, literal)]
            cells = (
                duel.title,
                d,
                queries[0],
                errors[0],
                queries[1],
                errors[1],
                f"{ratios[0]:,.2f}",
                f"{ratios[1]:,.2f}",
                f"{ratios[2]:.2f}",
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return None


if __name__ == "__main__":
    main()
