"""`fit` from recorded pairs, without a query. Run: python -m benchmarks.recorded_pairs [--seeds 20] [--widths
8 16 32]

Gaussian two-row sequences and their exact answers, 1.5 times as many as parameters (and 3), then fewer than
parameters. Recovered means an error of at most 1e-8, and covered by the bound. From too few records nothing
may come back: neither a model nor a success. With "v read first", d of the records have one row, which tells
v at once.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np

import unsoftmax

SHARES = (1.5, 3.0, 0.9, 0.5)


def records(
    head: unsoftmax.SingleHead, n: int, singles: int, seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng([seed, n, head.width])
    X = [*rng.standard_normal((singles, 1, head.width)), *rng.standard_normal((n - singles, 2, head.width))]
    return X, np.array([head(x[None])[0] for x in X])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--widths", type=int, nargs="+", default=(8, 16, 32))
    parser.add_argument("--ranks", type=int, nargs="+", default=(1, 2, 4))
    options = parser.parse_args()
    print(
        "| d | r | records / parameters | v | recovered | no model | wrong | largest error | seconds each "
        "|\n|---|---|---|---|---|---|---|---|---|"
    )
    for d, r, singles, share in product(options.widths, options.ranks, (0, 1), SHARES):
        found = nothing = wrong = 0
        worst, start = 0.0, time.perf_counter()
        for seed in range(options.seeds):
            head = unsoftmax.random_single_head(d, r, seed=seed, scale=1.0 / np.sqrt(d))
            n = int(np.ceil(share * head.parameters))
            X, y = records(head, n, singles * min(d, n // 2), seed)
            result = unsoftmax.fit(X, y, rank=r if share < 1.0 else None, seed=seed)
            if result.model is None:
                nothing += 1
                continue
            assert isinstance(result.model, unsoftmax.SingleHead)
            error = head.distance(result.model)
            covered = result.error_bound is not None and error <= result.error_bound
            found += error <= 1e-8 and covered
            wrong += not covered
            worst = max(worst, error)
        way = "read first" if singles else "unknown"
        each = (time.perf_counter() - start) / options.seeds
        print(
            f"| {d} | {r} | {share:g} | {way} | {found} of {options.seeds} | {nothing} | {wrong} | "
            f"{worst:.0e} | {each:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
