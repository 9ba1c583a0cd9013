"""Every claim against the bill, over the whole grid of cases; and plans against bills.

python -m benchmarks.claims
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tests.cases import bills
from tests.cases.bills import Bill, claimed, learning

from unsoftmax import Size

SEEDS = 4


def held(group: str, cases: Iterable[Bill]) -> int:
    """Prints a row; returns the number of violations."""
    of_claim, of_usual, worst, wrong, once, other = [], [], ("", 0.0), 0, 0, 0
    for case in cases:
        result = case.paid()
        if result.model is None:
            other += 1
            continue
        size, queries = Size.of(result.model), result.claim.queries
        share = learning(result) / claimed(result)
        of_claim.append(share)
        of_usual.append(result.queries.total / (queries.expected(size) + result.claim.verification(size)))
        once += learning(result) <= queries.count(size)
        wrong += not queries.holds(learning(result), size)
        worst = max(worst, (case.name, share), key=lambda pair: pair[1])
    near = float(np.mean(np.abs(np.array(of_usual) - 1.0) <= 0.2))
    print(
        f"| {group} | {len(of_claim)} | {wrong} | {once} | {np.median(of_claim):.2f} | {worst[1]:.2f} "
        f"({worst[0]}) | {np.median(of_usual):.2f} | {near:.0%} | {other} |",
        flush=True,
    )
    return wrong


def main(seeds: int = SEEDS) -> None:
    titles = (
        "family",
        "recovered",
        "violations",
        "within one attempt",
        "median billed / claimed",
        "worst",
        "median bill / plan",
        "plan within 20 %",
        "not recovered",
    )
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    every = range(seeds)
    groups: dict[str, Iterable[Bill]] = {
        "one head": (b for s in every for d in (2, 3, 5, 8, 16, 32) for b in bills.of_single_heads(d, s)),
        "several heads": (b for s in every for d in (6, 9, 12, 16) for b in bills.of_several_heads(d, s)),
        "vector answers": (b for s in every for d in (4, 8, 16) for b in bills.of_vector_answers(d, s)),
        "ReLU network": (
            b
            for s in every
            for d, m in ((2, 3), (4, 6), (8, 20), (16, 12))
            for b in bills.of_networks(d, m, s)
        ),
        "Transformer": (
            b
            for s in every
            for d, m in ((2, 3), (4, 6), (8, 8), (16, 12))
            for b in bills.of_transformers(d, m, s)
        ),
        "computed in short formats": (
            b
            for s in every
            for d, heads in ((8, 1), (8, 2), (12, 1), (12, 2), (12, 3))
            for b in bills.of_computed_heads(d, heads, s)
        ),
        "answers with errors": (
            b
            for s in every
            for d, r in ((3, None), (8, None), (8, 2), (16, 4))
            for b in bills.of_answers_with_errors(d, r, s)
        ),
    }
    wrong = sum(held(group, cases) for group, cases in groups.items())
    print(f"\n{wrong} violations")


if __name__ == "__main__":
    main()
