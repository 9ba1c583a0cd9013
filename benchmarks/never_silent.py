"""Boxes outside the class: how they end, over widths × seeds. Run: python -m benchmarks.never_silent [--seeds 10]"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.cases.outside import BOXES

import unsoftmax


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print("| box | how it ends | most queries | a test that failed |")
    print("|---|---|---|---|")
    silent = 0
    for name, make in BOXES.items():
        ends: Counter[str] = Counter()
        most, reason = 0, ""
        for d in (1, 2, 5, 16, 32):
            for seed in seeds:
                result = unsoftmax.recover(make(d, seed), width=d, seed=seed)
                ends[str(result.status)] += 1
                most, reason = max(most, result.queries.total), result.reason
                silent += result.status.recovered
        test = reason.split("'")[1] if reason.startswith("failed the test '") else reason[:60]
        print(f"| {name} | {', '.join(f'{n} {s}' for s, n in ends.items())} | {most} | {test} |", flush=True)
    print(f"\n{silent} boxes were reported as recovered")


if __name__ == "__main__":
    main()
