"""Smooth and gated two-layer networks from values: right, queries, errors, seconds.

python -m benchmarks.smooth_networks [--quick] [--case gelu] [--first 0] [--seeds 10]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

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


def row(name: str, make: Callable[[int], Network | GatedNetwork], seeds: range, unit: int) -> None:
    right, price, worst, seconds = 0, [], 0.0, []
    for seed in seeds:
        network = make(seed)
        start = time.process_time()
        result = unsoftmax.recover_network(network, seed=seed)
        seconds.append(time.process_time() - start)
        price.append(result.queries.total / unit)
        if result.model is None:
            print(f"  seed {seed}: {result.status}: {result.reason}")
            continue
        off = network.distance(result.model)  # type: ignore[arg-type]
        right += int(off < 1e-8)
        worst = max(worst, off)
    print(
        f"| {name} | {seeds.start}-{seeds.stop - 1} | {right}/{len(seeds)} | "
        f"{min(price):.2f}-{max(price):.2f} | {worst:.0e} | {np.median(seconds):.0f} |",
        flush=True,
    )


def cases(quick: bool) -> dict[str, tuple[str, Callable[[int], Network | GatedNetwork], int]]:
    """Label, what makes a network from a seed, and the unit in which queries are counted."""
    d, J = (16, 24) if quick else (32, 64)
    made: dict[str, tuple[str, Callable[[int], Network | GatedNetwork], int]] = {}
    for name in ("gelu", "silu", "tanh"):
        label = f"{name}, d={d}, J={J}, one number"
        made[name] = (label, partial(plain, d, J, None, name), J * (d + 2))
    for name in ("gelu", "softplus"):
        label = f"{name}, d={d}, J={J}, {d} outputs"
        made[f"{name}-vector"] = (label, partial(plain, d, J, d, name), J * (d + 2))
    w, units = (16, 20) if quick else (64, 128)
    for biased in (False, True):
        label = f"SwiGLU, d={w}, J={units}, {w} outputs, {'with' if biased else 'without'} biases"
        made["swiglu-biased" if biased else "swiglu"] = (
            label,
            lambda seed, biased=biased: gated(w, units, w, seed, biased),  # type: ignore[misc]
            gated(w, units, w, 0, biased).parameters,
        )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", action="append", choices=list(cases(True)))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.quick else 10)
    print(
        "| network | seeds | right (1e-8) | queries / J(d + 2), gated: / parameters | worst parameter | CPU "
        "s |"
    )
    print("|---|---|---|---|---|---|")
    for name, (label, make, unit) in cases(options.quick).items():
        if options.case is None or name in options.case:
            row(label, make, range(options.first, options.first + seeds), unit)


if __name__ == "__main__":
    main()
