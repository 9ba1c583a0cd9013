"""Boxes outside the class: how they end, over widths × seeds. A success counts as wrong when it is EXACT, or
when more sequences deviate from the model than its certificate states.

Run: python -m benchmarks.never_silent [--seeds 10]
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.cases.honesty_case import Case
from tests.cases.outside import BOXES

import unsoftmax
from benchmarks._honesty_score import share_beyond
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
                    fresh = make(d, seed)  # one that has no answers in its memory
                    beyond = share_beyond(Case(fresh, d, fresh), result, seed)
                    stated = 0.0 if result.certificate is None else result.certificate.fraction
                    silent += result.status is Status.EXACT or beyond > stated
        test = reason.split("'")[1] if reason.startswith("failed the test '") else reason[:60]
        print(f"| {name} | {', '.join(f'{n} {s}' for s, n in ends.items())} | {most} | {test} |", flush=True)
    print(f"\n{silent} boxes were reported as recovered, and are not what was reported")


if __name__ == "__main__":
    main()
