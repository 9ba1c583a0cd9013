"""Boxes outside the class: how they end, over widths × seeds. Run: python -m benchmarks.never_silent [--seeds
10]"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.cases.outside import BOXES
from tests.test_never_silent import deviation_on_fresh_inputs

import unsoftmax
from unsoftmax import Status


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
                box = make(d, seed)
                result = unsoftmax.recover(box, width=d, seed=seed)
                ends[str(result.status)] += 1
                most, reason = max(most, result.queries.total), result.reason
                if result.model is not None:
                    silent += (
                        result.status is Status.EXACT
                        or deviation_on_fresh_inputs(box, result.model, d) >= 1e-9
                    )
        test = reason.split("'")[1] if reason.startswith("failed the test '") else reason[:60]
        print(f"| {name} | {', '.join(f'{n} {s}' for s, n in ends.items())} | {most} | {test} |", flush=True)
    print(f"\n{silent} boxes were reported as recovered and answer otherwise on fresh inputs")


if __name__ == "__main__":
    main()
