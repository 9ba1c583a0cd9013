"""Networks with neurons of very different sizes, or that are awkward otherwise: how runs end, and whether a
success is ever wrong.

`distance` is the one that error bounds are about: the canonical form Σ ±|n_j·x + o_j| + l·x + l0, all
parameters together (offsets and constant in units of the hyperplanes' typical distance from the origin), root
of the summed squared differences over that of the parameters. Loud folds outweigh faint ones in it; of those
the certificate's caveat says how faint a fold may be and still be seen.

Run: python -m benchmarks.network_fuzz [--seeds 5] [--decades 2 4 6 9 12] [--only KIND] [--list]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

import numpy as np
from tests.cases.awkward_networks import AWKWARD
from tests.cases.spread_networks import PARTS, spread_network, spread_transformer

import unsoftmax
from unsoftmax import ReluNetwork, Result, Status, Transformer

SIZES = ((3, 4), (6, 8), (8, 16))
WIDTHS = ((4, 5), (5, 8), (6, 10))
Maker = Callable[[int, int, float, np.random.Generator], ReluNetwork | Transformer]

KINDS: dict[str, Maker] = {
    "rows": lambda d, m, decades, rng: spread_network(d, m, decades, rng, ("rows",)),
    "outputs": lambda d, m, decades, rng: spread_network(d, m, decades, rng, ("outputs",)),
    "biases": lambda d, m, decades, rng: spread_network(d, m, decades, rng, ("biases",)),
    "all": lambda d, m, decades, rng: spread_network(d, m, decades, rng, PARTS),
    "rows and outputs, no biases": lambda d, m, decades, rng: spread_network(
        d, m, decades, rng, ("rows", "outputs"), biased=False
    ),
    "Transformer, all": lambda d, m, decades, rng: spread_transformer(d, m, decades, rng),
    "Transformer, no biases": lambda d, m, decades, rng: spread_transformer(d, m, decades, rng, biased=False),
    **AWKWARD,
}
COLUMNS = ("EXACT", "WITHIN_BOUND", "NOT_IDENTIFIABLE", "OUTSIDE_CLASS", "UNRESOLVED")


def recovered(hidden: ReluNetwork | Transformer, seed: int) -> Result:
    """A recovery that knows the width alone."""
    if isinstance(hidden, Transformer):
        return unsoftmax.recover(lambda X: hidden(X), width=hidden.width, family="transformer", seed=seed)
    return unsoftmax.recover_network(lambda X: hidden(X), width=hidden.width, seed=seed)


def attack(kind: str, decades: float, seeds: int, show: bool) -> Counter[str]:
    """Runs one kind at one spread over all sizes; counts of outcomes, and of successes that are wrong."""
    counts: Counter[str] = Counter()
    for d, m in WIDTHS if kind.startswith("Transformer") else SIZES:
        for seed in range(seeds):
            hidden = KINDS[kind](d, m, decades, np.random.default_rng([11, seed, d, m, int(decades)]))
            result = recovered(hidden, seed)
            counts["runs"] += 1
            counts[str(result.status)] += 1
            if result.model is None:
                continue
            bound = result.error_bound or 0.0
            alike = type(result.model) is type(hidden)
            distance = hidden.distance(result.model) if alike else np.inf  # type: ignore[arg-type]
            beyond, untrue = (
                distance > bound,
                result.status is Status.EXACT and distance > result.model.exact_at,
            )
            counts["beyond"] += beyond
            counts["untrue"] += untrue
            if show and (beyond or untrue):
                run = f"{kind}, {decades:g} decades, d={d} m={m} seed={seed}"
                print(f"{run}: {result.status}, distance {distance:.1g}, bound {bound:.1g}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decades", type=float, nargs="+", default=[2.0, 4.0, 6.0, 9.0, 12.0])
    parser.add_argument("--only", choices=tuple(KINDS))
    parser.add_argument("--list", action="store_true", help="one line for every success that is wrong")
    options = parser.parse_args()
    print(
        f"| kind | decades | runs | {' | '.join(COLUMNS)} | distance above bound | EXACT, distance above "
        "exact_at |"
    )
    print(f"|---|---|---|{'---|' * len(COLUMNS)}---|---|")
    total: Counter[str] = Counter()
    for kind in [options.only] if options.only else KINDS:
        for decades in options.decades:
            counts = attack(kind, decades, options.seeds, options.list)
            total += counts
            cells = [counts[name] for name in ("runs", *COLUMNS, "beyond", "untrue")]
            print(f"| {kind} | {decades:g} | {' | '.join(map(str, cells))} |", flush=True)
    print(
        f"\n{total['runs']} runs: {total['beyond']} successes further off than their bound, "
        f"{total['untrue']} EXACT ones further off than exact_at"
    )


if __name__ == "__main__":
    main()
