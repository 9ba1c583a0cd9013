"""Defences as deployed, with the attack adapted to each: detectors of query patterns, budgets that accounts
share, neurons made similar.

python -m benchmarks.detectors [--seeds 5]
"""

from __future__ import annotations

import argparse

import numpy as np

import unsoftmax
from unsoftmax.audit.defences.table import DefenceRow

HEADS = (
    "",
    "prada=0.9",
    "prada=0.95",
    "structured-rows=0.05",
    "prada=0.9+accounts=16",
    "structured-rows=0.05+accounts=16",
    "budget=64",
    "budget=64+accounts=16",
)
NETWORKS = ("", "similar-neurons=0.9", "similar-neurons=0.99", "similar-neurons=0.999")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    heads = [unsoftmax.defend(unsoftmax.random_single_head(8, seed=s), defences=HEADS, seed=s) for s in seeds]
    print(f"One head, d = 8, {heads[0].parameters} parameters, {len(seeds)} seeds\n")
    show([table.rows for table in heads])
    networks = [
        unsoftmax.defend(unsoftmax.random_transformer(6, 6, seed=s), defences=NETWORKS, seed=s) for s in seeds
    ]
    size = networks[0].parameters
    print(f"\nOne-layer Transformer, d = 6, 6 neurons, {size} parameters, {len(seeds)} seeds\n")
    show([table.rows for table in networks])


def show(tables: list[tuple[DefenceRow, ...]]) -> None:
    print("| defence | recovered | queries | worst error | honest answers move by | refused | adapted by |")
    print("|---|---|---|---|---|---|---|")
    for rows in zip(*tables, strict=True):
        errors = [row.parameter_error for row in rows if row.parameter_error is not None]
        how = max((row.adapted for row in rows), key=len) or "nothing"
        print(
            f"| {rows[0].label} | {len(errors)} of {len(rows)} | "
            f"{np.median([row.queries for row in rows]):,.0f} | {max(errors, default=np.nan):.0e} | "
            f"{np.median([row.distortion for row in rows]):.0e} | {max(row.refused for row in rows):.0%} | "
            f"{how} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
