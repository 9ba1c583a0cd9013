"""How many measurements each solver needs: success against m / (r(2d - r)). Run: python -m
benchmarks.phase_diagram [--seeds 20] [--out FILE.svg]

Gaussian pairs and exact measurements, so that only the solvers are compared; success is a relative error of W
of at most 1e-8. The range finder chooses its own pairs: it is counted through the oracle, and its dot is at
the measurements that it took. With --learner, Theorem 5.1 itself is run through answers at d = 64, at its
measured thresholds.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np

import unsoftmax
from unsoftmax.solvers import FixedRank, NuclearNorm

SIZES = (16, 32, 64)
RANKS = (2, 4, 8)
CONVEX = (1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25)
DESCENT = (1.0, 1.1, 1.25, 1.5, 2.0)
LEARNER = ((2, 3.25), (4, 2.75), (8, 2.5))


def rate(solver: str, d: int, r: int, ratio: float, seeds: int) -> float:
    """Share of seeds that recover W from ratio·r(2d - r) Gaussian pairs."""
    hits = 0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, d, r])
        W = rng.standard_normal((d, r)) @ rng.standard_normal((r, d))
        A, B = rng.standard_normal((2, int(np.ceil(ratio * r * (2 * d - r))), d))
        t = np.einsum("kd,kd->k", A @ W, B)
        if solver == "nuclear norm":
            found = NuclearNorm(iterations=800).fit(A, B, t).matrix.dense()
        else:
            found = (
                FixedRank(r, restarts=4 if d * r > 200 else 10, steps=30).solve(A, B, t, rng).matrix.dense()
            )
        hits += bool(np.linalg.norm(found - W) <= 1e-8 * np.linalg.norm(W))
        if seed == 3 and hits == 0:  # hopeless: four failures in a row are not followed up
            return 0.0
    return hits / seeds


def range_finder(d: int, r: int, seeds: int) -> tuple[float, float]:
    """Success rate, and the largest number of measurements over r(2d - r)."""
    hits, most = 0, 0.0
    for seed in range(seeds):
        head = unsoftmax.random_single_head(d, r, seed=seed)
        result = unsoftmax.recover(head, seed=seed)
        found = result.model
        hits += isinstance(found, unsoftmax.SingleHead) and head.distance(found) <= 1e-8
        most = max(most, result.queries.by_phase["scores"] / (r * (2 * d - r)))
    return hits / seeds, most


def learner(seeds: int) -> None:
    """Theorem 5.1 through answers."""
    print("\n| d | r | C | queries | error <= 1e-8 |\n|---|---|---|---|---|")
    for r, C in LEARNER:
        hits, queries = 0, 0
        for seed in range(seeds):
            head = unsoftmax.random_single_head(64, r, seed=seed)
            result = unsoftmax.recover(head, seed=seed, learner=unsoftmax.theorem_5_1(r, C))
            hits += isinstance(result.model, unsoftmax.SingleHead) and head.distance(result.model) <= 1e-8
            queries = result.queries.learning
        print(f"| 64 | {r} | {C:g} | {queries:,} | {hits} of {seeds} |", flush=True)


def draw(
    curves: dict[tuple[int, int], dict[str, list[tuple[float, float]]]], widths: tuple[int, ...], path: Path
) -> None:
    """One panel a size and rank."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(widths),
        len(RANKS),
        figsize=(10, 2.5 * len(widths)),
        sharex=True,
        sharey=True,
        squeeze=False,
        constrained_layout=True,
    )
    styles = {"nuclear norm": "o-", "fixed rank": "s-", "range finder": "D"}
    for (d, r), lines in curves.items():
        panel = axes[widths.index(d)][RANKS.index(r)]
        for name, points in lines.items():
            panel.plot(*zip(*points, strict=True), styles[name], label=name, markersize=4)
        panel.set_title(f"d = {d}, r = {r}", fontsize=10)
        panel.set_ylim(-0.05, 1.1)
    axes[0][0].legend(fontsize=8)
    figure.supxlabel("measurements / (r(2d - r))")
    figure.supylabel("recovered to 1e-8")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None, help="write the picture here")
    parser.add_argument("--widths", type=int, nargs="+", default=SIZES)
    parser.add_argument("--learner", action="store_true", help="only Theorem 5.1 through answers")
    options = parser.parse_args()
    if options.learner:
        return learner(options.seeds)
    print("| d | r | solver | success at measurements / (r(2d - r)) |\n|---|---|---|---|")
    curves: dict[tuple[int, int], dict[str, list[tuple[float, float]]]] = {}
    for d, r in product(options.widths, RANKS):
        success, most = range_finder(d, r, options.seeds)
        lines = {"range finder": [(most, success)]}
        for name, ratios in (("fixed rank", DESCENT), ("nuclear norm", CONVEX)):
            points: list[tuple[float, float]] = []
            for ratio in ratios:
                points.append((ratio, rate(name, d, r, ratio, options.seeds)))
                if len(points) > 1 and points[-1][1] == points[-2][1] == 1.0:
                    break  # twice all of them: more measurements change nothing
            lines[name] = points
        curves[d, r] = lines
        for name, points in lines.items():
            print(f"| {d} | {r} | {name} | {', '.join(f'{x:.2f}: {y:.0%}' for x, y in points)} |", flush=True)
    if options.out is not None:
        draw(curves, tuple(options.widths), options.out)
        print(f"\npicture: {options.out}")
    return None


if __name__ == "__main__":
    main()
