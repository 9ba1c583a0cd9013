"""Learners that return a wrong model and claim that it is right: how many succeed?

Run: python -m benchmarks.self_grading [--seeds 2] [--families single-head ...] [--widths 4 8] A run succeeds
wrongly when it is recovered although the true distance is more than its error bound.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.cases.boasters import KINDS, attacks, targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--widths", type=int, nargs="*", default=[4])
    parser.add_argument("--families", nargs="*", default=list(targets(4, 0)))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    print("| family | answers | runs | wrong successes |")
    print("|---|---|---|---|")
    everywhere = 0
    for family in options.families:
        for kind in options.kinds:
            wrong: Counter[str] = Counter()
            runs = 0
            for width in options.widths:
                for seed in range(options.seeds):
                    for name, passed in attacks(family, kind, width, seed):
                        runs += 1
                        if passed:
                            wrong[name] += 1
            everywhere += sum(wrong.values())
            names = "; ".join(f"{name} ({n})" for name, n in wrong.most_common(6))
            print(f"| {family} | {kind} | {runs} | {sum(wrong.values())} {names} |", flush=True)
    print(f"\n{everywhere} wrong successes")


if __name__ == "__main__":
    main()
