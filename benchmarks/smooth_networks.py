"""Smooth and gated two-layer networks from values: right, queries, errors, seconds.

python -m benchmarks.smooth_networks [--quick]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import unsoftmax
from unsoftmax.models import GatedNetwork, Network
from unsoftmax.models.parts import activation_named


def plain(d: int, neurons: int, outputs: int | None, name: str, seed: int) -> Network:
    """Weights and biases as torch's nn.Linear draws them."""
    rng = np.random.default_rng([77, seed])
    m = () if outputs is None else (outputs,)
    A, b = rng.uniform(-1, 1, (neurons, d)) / np.sqrt(d), rng.uniform(-1, 1, neurons) / np.sqrt(d)
    U, c = rng.uniform(-1, 1, (neurons, *m)) / np.sqrt(neurons), rng.uniform(-1, 1, m)
    return Network(A, U, b, c, activation=activation_named(name))


def gated(d: int, units: int, outputs: int, seed: int, biased: bool) -> GatedNetwork:
    """Weights as torch's nn.Linear draws them, with or without biases."""
    rng = np.random.default_rng([78, seed])
    sizes = ((units, d), (units, d), (units, outputs), (units,), (units,), (outputs,))
    parts = [rng.uniform(-1, 1, size) / np.sqrt(d) for size in sizes]
    return GatedNetwork(*parts[:3], *(part * float(biased) for part in parts[3:]))


def row(name: str, hidden: list[Network] | list[GatedNetwork], unit: int) -> None:
    right, price, worst, seconds = 0, [], 0.0, []
    for seed, network in enumerate(hidden):
        start = time.perf_counter()
        result = unsoftmax.recover_network(network, seed=seed)
        seconds.append(time.perf_counter() - start)
        price.append(result.queries.total / unit)
        if result.model is None:
            print(f"  seed {seed}: {result.status}: {result.reason}")
            continue
        off = network.distance(result.model)  # type: ignore[arg-type]
        right += int(off < 1e-8)
        worst = max(worst, off)
    print(
        f"| {name} | {right}/{len(hidden)} | {min(price):.2f}-{max(price):.2f} | {worst:.0e} | "
        f"{np.median(seconds):.0f} |",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    quick = "--quick" in (sys.argv[1:] if arguments is None else arguments)
    seeds = 2 if quick else 10
    print("| network | right (1e-8) | queries / J(d + 2), gated: / parameters | worst parameter | seconds |")
    print("|---|---|---|---|---|")
    d, J = (16, 24) if quick else (32, 64)
    for name in ("gelu", "silu", "tanh"):
        row(
            f"{name}, d={d}, J={J}, one number",
            [plain(d, J, None, name, s) for s in range(seeds)],
            J * (d + 2),
        )
    for name in ("gelu", "softplus"):
        row(
            f"{name}, d={d}, J={J}, {d} outputs", [plain(d, J, d, name, s) for s in range(seeds)], J * (d + 2)
        )
    d, J = (16, 20) if quick else (64, 128)
    for biased in (False, True):
        made = [gated(d, J, d, s, biased) for s in range(2 if quick else 3)]
        label = "with biases" if biased else "without biases"
        row(f"SwiGLU, d={d}, J={J}, {d} outputs, {label}", made, made[0].parameters)


if __name__ == "__main__":
    main()
