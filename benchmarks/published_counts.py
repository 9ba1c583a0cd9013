"""Several heads: our bill beside the published count 4Hd² - 2H + 1 (arXiv 2608.03294) and beside the number
of parameters.

    python -m benchmarks.published_counts            # up to d = 384
    python -m benchmarks.published_counts --fast

The published algorithm has no public code; its formula is compared with queries that were really sent. Ours
uses sequences of 2 rows (one of 3 rows a head), and is told neither the number of heads nor any rank.
"""

from __future__ import annotations

import argparse

import unsoftmax
from unsoftmax import MultiHead, random_multi_head

SHAPES = ((8, 2, 8), (8, 6, 8), (16, 4, 4), (32, 8, 4), (64, 8, 8), (64, 12, 64), (128, 8, 16), (384, 12, 32))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    shapes = SHAPES[:4] if parser.parse_args().fast else SHAPES
    print(
        "| d | heads | rank | parameters | published 4Hd² - 2H + 1 | ours | published / ours | ours / "
        "parameters | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for d, heads, r in shapes:
        model = random_multi_head(d, heads, r, seed=0)
        result = unsoftmax.recover(model, seed=0)
        found = result.unwrap()
        assert isinstance(found, MultiHead)
        paid, published = result.queries.learning, 4 * heads * d * d - 2 * heads + 1
        print(
            f"| {d} | {heads} | {r} | {model.parameters:,} | {published:,} | {paid:,} | "
            f"{published / paid:.1f} | {paid / model.parameters:.2f} | {model.distance(found):.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
