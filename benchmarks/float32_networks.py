"""ReLU networks that compute in float32, through `recover_network`: status, queries, coverage of the bound,
deviation over the network's own.

"own" is the root mean square deviation of the float32 network from its float64 copy on Gaussian rows.

python -m benchmarks.float32_networks [--first 100] [--seeds 5] [--width 16] [--neurons 32]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.models import ReluNetwork


def in_float32(parts: Sequence[NDArray[np.float32]], X: Array) -> Array:
    """The network of A, b, u and c, every step in float32."""
    A, b, u, c = parts
    return np.asarray((np.maximum(X.astype(np.float32) @ A.T + b, 0) @ u + c).astype(np.float64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 100), ("seeds", 5), ("width", 16), ("neurons", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    d, m = options.width, options.neurons
    rows: list[tuple[float, float, float, float, float]] = []
    for seed in range(options.first, options.first + options.seeds):
        hidden = unsoftmax.random_relu_network(d, m, seed=seed, biases=seed % 2 == 0)
        b = np.zeros(m) if hidden.b is None else hidden.b
        A, u, b, c = (np.asarray(part, dtype=np.float32) for part in (hidden.A, hidden.u, b, hidden.c))
        exact = ReluNetwork(A, u, b if hidden.b is not None else None, c)

        short = partial(in_float32, (A, b, u, c))
        start = time.process_time()
        result = unsoftmax.recover_network(short, width=d, seed=seed)
        seconds, price = time.process_time() - start, result.queries.total / (m * (d + 2))
        print(f"  seed {seed}: {result.status}, {price:.0f} queries a parameter, {seconds:.1f} s", flush=True)
        if not isinstance(result.model, ReluNetwork) or result.error_bound is None:
            print(f"    {result.reason}", flush=True)
            rows.append((0.0, price, np.nan, 0.0, seconds))
            continue
        X = np.random.default_rng(seed).standard_normal((1000, d)).astype(np.float32).astype(np.float64)
        off = rms(result.model(X) - exact(X)) / rms(short(X) - exact(X))
        covered = float(exact.distance(result.model) <= result.error_bound)
        rows.append((1.0, price, off, covered, seconds))
    right, prices, offs, covered_all, times = np.array(rows).T
    print("| d, m | WITHIN_BOUND | queries / m(d + 2) | covered | deviation / own, median / worst | CPU s |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {d}, {m} | {int(right.sum())}/{len(right)} | {np.median(prices):.0f} / {prices.max():.0f} | "
        f"{int(covered_all.sum())}/{int(right.sum())} | {np.nanmedian(offs):.2f} / {np.nanmax(offs):.2f} | "
        f"{np.median(times):.1f} |"
    )


if __name__ == "__main__":
    main()
