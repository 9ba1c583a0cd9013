"""Two-layer ReLU networks: counts, errors and queries over sizes × families × seeds; bumps against
thoroughness; digits against queries.

Run: python -m benchmarks.relu_networks [--seeds 20] [--only grid|hard|bumps|polish]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from tests.cases.networks import HARD, gaussian, with_bump

import unsoftmax
from unsoftmax import ReluNetwork, ReluNetworkLearner

GRID = [(d, m) for d in (8, 16, 32, 64) for m in (5, 16, 64, 256)]
Maker = Callable[[int, int, np.random.Generator, bool], ReluNetwork]
HARD_SIZES = ((8, 12), (16, 64), (64, 96), (1, 6), (2, 5), (8, 1))


def function_error(hidden: ReluNetwork, found: ReluNetwork, seed: int) -> float:
    """Root mean square of the difference over that of the function, on Gaussian rows of the size of its
    kinks' distance."""
    rows = hidden.folds.reach * np.random.default_rng([9, seed]).standard_normal((2000, hidden.width))
    size = float(np.sqrt(np.mean(hidden(rows) ** 2)))
    return float(np.sqrt(np.mean((hidden(rows) - found(rows)) ** 2))) / (size if size > 0 else 1.0)


def measure(
    name: str, make: Callable[[int], ReluNetwork], seeds: int, learner: ReluNetworkLearner | None = None
) -> None:
    statuses: Counter[str] = Counter()
    errors, parameters, covered, learning, total, seconds, right = [], [], 0, [], [], [], 0
    for seed in range(seeds):
        hidden = make(seed)
        started = time.perf_counter()
        result = unsoftmax.recover_network(hidden, seed=seed, learner=learner)
        seconds.append(time.perf_counter() - started)
        statuses[str(result.status)] += 1
        unit = max(hidden.folds.count, 1) * (hidden.width + 2)
        learning.append(result.queries.learning / unit)
        total.append(result.queries.total / unit)
        if isinstance(result.model, ReluNetwork) and result.error_bound is not None:
            right += result.model.folds.count == hidden.folds.count
            errors.append(function_error(hidden, result.model, seed))
            parameters.append(hidden.distance(result.model))
            covered += parameters[-1] <= result.error_bound
    print(
        f"| {name:<42} | {', '.join(f'{n} {s}' for s, n in statuses.items()):<24} | {right}/{seeds} | "
        f"{max(errors, default=np.nan):.0e} | {max(parameters, default=np.nan):.0e} | "
        f"{covered}/{len(errors)} | {np.mean(learning):.3f} | {max(learning):.3f} | {np.mean(total):.3f} | "
        f"{max(total):.3f} | {np.mean(seconds):.2f} |",
        flush=True,
    )


def heading() -> None:
    print("queries in units of m(d + 2), m: number of kinks; learning: without verification\n")
    print(
        "| networks | status | kinks right | worst function error | worst distance | within bound | "
        "learning, mean | max | total, mean | max | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")


def _random(d: int, m: int, biased: bool, seed: int) -> ReluNetwork:
    return gaussian(d, m, np.random.default_rng([1, seed, d, m]), biased)


def grid(seeds: int) -> None:
    heading()
    for biased in (False, True):
        for d, m in GRID:
            name = f"d={d} m={m}{' biases' if biased else ''}"
            measure(name, partial(_random, d, m, biased), seeds)


def _hard(maker: Maker, d: int, m: int, biased: bool, seed: int) -> ReluNetwork:
    return maker(d, m, np.random.default_rng([2, seed]), biased)


def hard(seeds: int) -> None:
    heading()
    for biased in (False, True):
        for d, m in HARD_SIZES:
            for name, maker in HARD.items():
                label = f"{name}, d={d} m={m}{' biases' if biased else ''}"
                measure(label, partial(_hard, maker, d, m, biased), seeds)


def bumps(seeds: int) -> None:
    print(
        "\nA bump (three parallel neurons that cancel outside a slab) on top of a random network, d=8 m=16, "
        "hyperplanes about 1 from the origin\n"
    )
    print(
        "| slab width | thoroughness | found | refused | silently missed | stated blind spot | queries, "
        "mean |"
    )
    print("|---|---|---|---|---|---|---|")
    for width in (0.3, 0.1, 0.03, 0.01):
        for thoroughness in (0.25, 1.0, 4.0, 16.0, 64.0):
            found = refused = missed = 0
            queries, spots = [], []
            for seed in range(seeds):
                hidden = with_bump(8, 16, width, np.random.default_rng([3, seed]))
                learner = ReluNetworkLearner(thoroughness=thoroughness)
                result = unsoftmax.recover_network(hidden, seed=seed, learner=learner)
                queries.append(result.queries.total)
                if not isinstance(result.model, ReluNetwork):
                    refused += 1
                    continue
                assert result.certificate is not None
                spots.append(float(result.certificate.caveat.split("narrower than ")[1].split(",")[0]))
                found += hidden.distance(result.model) < 1e-6
                missed += hidden.distance(result.model) >= 1e-6
            print(
                f"| {width} | {thoroughness:g} | {found} | {refused} | {missed} | {np.median(spots):.2g} | "
                f"{np.mean(queries):.0f} |",
                flush=True,
            )


def polish(seeds: int) -> None:
    print("\nDigits against queries\n")
    heading()
    for d, m in ((32, 64), (64, 256)):
        for share, goal in ((0.0, 1e-10), (0.03, 1e-10), (0.1, 1e-12), (0.3, 1e-13), (1.0, 1e-15)):
            learner = ReluNetworkLearner(polish=share, goal=goal)
            name = f"d={d} m={m} biases, polish={share:g}"
            measure(name, partial(_random, d, m, True), seeds, learner)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", choices=("grid", "hard", "bumps", "polish"))
    options = parser.parse_args()
    for part in (grid, hard, bumps, polish):
        if options.only in (None, part.__name__):
            part(options.seeds if part is not polish else min(options.seeds, 5))


if __name__ == "__main__":
    main()
