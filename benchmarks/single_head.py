"""One head: errors and queries over widths × kinds × seeds. Run: python -m benchmarks.single_head [--seeds
20]"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from tests.cases import heads

import unsoftmax
from unsoftmax import SingleHead

WIDTHS = (1, 2, 5, 16, 48, 96)
LOW_RANK = (
    ("d=64 r=7", dict(d=64, r=7)),
    ("d=200 r=13", dict(d=200, r=13)),
    ("d=384 r=32", dict(d=384, r=32)),
    ("d=64 r=64, 5 decades", dict(d=64, r=64, decades=5.0)),
    ("d=200 r=13, 5 decades", dict(d=200, r=13, decades=5.0)),
    ("d=200 r=13, v orthogonal", dict(d=200, r=13, v="orthogonal")),
    ("d=384 r=32, v inside", dict(d=384, r=32, v="inside")),
)


def measure(name: str, targets: list[SingleHead]) -> None:
    statuses: Counter[str] = Counter()
    errors, bounds, over, ratios = [], [], [], []
    for seed, head in enumerate(targets):
        result = unsoftmax.recover(lambda X, head=head: head(X), width=head.width, seed=seed)
        statuses[str(result.status)] += 1
        ratios.append(result.queries.learning / head.parameters)
        over.append(result.queries.learning - (1.02 * head.parameters + 32))
        if isinstance(result.model, SingleHead) and result.error_bound is not None:
            errors.append(head.distance(result.model))
            bounds.append(errors[-1] / result.error_bound)
    worst = max(errors, default=np.nan)
    cover = f"{sum(ratio <= 1 for ratio in bounds)}/{len(bounds)}"
    print(
        f"| {name:<32} | {', '.join(f'{n} {s}' for s, n in statuses.items()):<12} | {worst:.1e} | "
        f"{max(ratios):.3f} | {'yes' if max(over) <= 0 else f'over by {max(over):.0f}':<9} | {cover} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    print("| target | status | worst error | worst queries/parameters | <= 1.02 p + 32 | bound covers |")
    print("|---|---|---|---|---|---|")
    for d in WIDTHS:
        for kind in heads.ALL:
            measure(f"d={d} {kind}", [heads.make(kind, d, 100 + seed) for seed in seeds])
    for name, options in LOW_RANK:
        measure(name, [heads.low_rank(seed=100 + seed, **options) for seed in seeds])


if __name__ == "__main__":
    main()
