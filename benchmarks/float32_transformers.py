"""One-layer Transformers that compute in float32, through `recover`: status, queries, coverage of the bound,
deviation over the target's own.

"own" is the root mean square deviation of the float32 Transformer from its float64 copy on sequences of 2 to
64 Gaussian rows. Every other network has biases, every third target a skip connection.

python -m benchmarks.float32_transformers [--first 100] [--seeds 5] [--width 16] [--neurons 16]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.models import ReluNetwork, Transformer

_LENGTHS = (2, 3, 5, 9, 17, 33, 64)
_EACH = 60


def drawn(d: int, m: int, seed: int) -> Transformer:
    """With parameters that float32 holds."""
    model = unsoftmax.random_transformer(
        d, m, seed=seed, biases=seed % 2 == 0, residual=float(seed % 3 == 0), scale=0.5
    )
    network = model.network
    A, u, c, W = (np.float64(np.float32(part)) for part in (network.A, network.u, network.c, model.W))
    b = None if network.b is None else np.float64(np.float32(network.b))
    return Transformer(W, ReluNetwork(A, u, b, float(c)), residual=model.residual)


def in_float32(model: Transformer) -> Callable[[Array], Array]:
    """The same with every step in float32."""
    network = model.network
    A, u, W = (np.float32(part) for part in (network.A, network.u, model.W))
    b = np.float32(0.0 if network.b is None else network.b)
    c, residual = np.float32(network.c), np.float32(model.residual)

    def answer(batch: Array) -> Array:
        X = batch.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("bn,bnd->bd", weights, X) + residual * X[:, -1]
        return np.asarray((np.maximum(mixed @ A.T + b, 0) @ u + c).astype(np.float64))

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 100), ("seeds", 5), ("width", 16), ("neurons", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    d, m = options.width, options.neurons
    rows: list[tuple[float, float, float, float, float]] = []
    for seed in range(options.first, options.first + options.seeds):
        exact = drawn(d, m, seed)
        short = in_float32(exact)
        start = time.process_time()
        result = unsoftmax.recover(short, width=d, seed=seed)
        seconds, price = time.process_time() - start, result.queries.total / exact.parameters
        print(f"  seed {seed}: {result.status}, {price:.0f} queries a parameter, {seconds:.1f} s", flush=True)
        if not isinstance(result.model, Transformer) or result.error_bound is None:
            print(f"    {result.reason}", flush=True)
            rows.append((0.0, price, np.nan, 0.0, seconds))
            continue
        rng, off, own = np.random.default_rng(seed), [], []
        for length in _LENGTHS:
            X = rng.standard_normal((_EACH, length, d)).astype(np.float32).astype(np.float64)
            off.append(result.model(X) - exact(X))
            own.append(short(X) - exact(X))
        error = exact.distance(result.model)
        deviation = rms(np.array(off)) / rms(np.array(own))
        print(f"    error {error:.1e}, bound {result.error_bound:.1e}, deviation / own {deviation:.2f}")
        rows.append((1.0, price, deviation, float(error <= result.error_bound), seconds))
    right, prices, offs, covered, times = np.array(rows).T
    print(
        "| d, m | WITHIN_BOUND | queries / parameters | covered | deviation / own, median / worst | CPU s |"
    )
    print("|---|---|---|---|---|---|")
    print(
        f"| {d}, {m} | {int(right.sum())}/{len(right)} | {np.median(prices):.0f} / {prices.max():.0f} | "
        f"{int(covered.sum())}/{int(right.sum())} | {np.nanmedian(offs):.2f} / {np.nanmax(offs):.2f} | "
        f"{np.median(times):.1f} |"
    )


if __name__ == "__main__":
    main()
