"""Whole encoder layers of torch, from the answers of their last row: right, queries, errors, processor
seconds.

python -m benchmarks.encoder_blocks [--quick | width heads neurons seeds] [--order pre|post] [--activation
relu|gelu] [--first seed]
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch

import unsoftmax
from unsoftmax.models import EncoderBlock, block_from_torch

CASES = ((16, 2, 32, 10), (32, 4, 64, 10), (64, 4, 256, 3))


def layer(
    d: int, heads: int, neurons: int, activation: str, seed: int, *, norm_first: bool = True
) -> torch.nn.TransformerEncoderLayer:
    """A layer whose gains and biases are drawn as well."""
    torch.manual_seed(seed)
    made = torch.nn.TransformerEncoderLayer(
        d, heads, neurons, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name and "weight" in name:
                parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
            elif "bias" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return made


def measure(
    target: torch.nn.TransformerEncoderLayer, d: int, seed: int
) -> tuple[bool, float, float, float, float, float]:
    """(right, queries over parameters, distance, largest deviation on fresh sequences, seconds, error bound
    over distance)."""
    parameters = sum(p.numel() for p in target.parameters())
    start = time.process_time()
    result = unsoftmax.recover(target, seed=seed)
    seconds = time.process_time() - start
    if not isinstance(result.model, EncoderBlock):
        print(f"  seed {seed}: {result.status}: {result.reason}")
        return False, result.queries.total / parameters, np.inf, np.inf, seconds, np.inf
    X = np.random.default_rng(seed).standard_normal((100, 5, d))
    answers = target(torch.tensor(X))[:, -1].detach().numpy()
    off = float(np.abs(result.model(X) - answers).max())
    distance = block_from_torch(target).distance(result.model)
    cover = (result.error_bound or 0.0) / max(distance, 1e-300)
    return result.status.recovered, result.queries.total / parameters, distance, off, seconds, cover


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two layers of width 16 of every kind")
    parser.add_argument("size", nargs="*", type=int, help="width, heads, neurons, seeds")
    parser.add_argument("--order", choices=("pre", "post"))
    parser.add_argument("--activation", choices=("relu", "gelu"))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    if len(options.size) not in (0, 4):
        parser.error("a size is four numbers: width, heads, neurons, seeds")
    cases = [tuple(options.size)] if options.size else [(16, 2, 32, 2)] if options.quick else CASES
    orders = [options.order] if options.order else ["pre", "post"]
    activations = [options.activation] if options.activation else ["relu", "gelu"]
    first = options.first
    torch.set_num_threads(1)
    print(
        "| d, H, ff | norms | activation | right | queries / parameters | worst parameter | deviation | "
        "bound / error, least | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for d, heads, neurons, seeds in cases:
        for order in orders:
            for activation in activations:
                rows = []
                for seed in range(first, first + seeds):
                    target = layer(d, heads, neurons, activation, seed, norm_first=order == "pre")
                    rows.append(measure(target, d, seed))
                    print(
                        f"  seed {seed}:",
                        *(f"{number:.3g}" for number in rows[-1]),
                        file=sys.stderr,
                        flush=True,
                    )
                price = [row[1] for row in rows]
                worst, off, least = max(r[2] for r in rows), max(r[3] for r in rows), min(r[5] for r in rows)
                print(
                    f"| {d}, {heads}, {neurons} | {order} | {activation} | {sum(r[0] for r in rows)}/{seeds} "
                    f"| {min(price):.2f}-{max(price):.2f} | {worst:.0e} | {off:.0e} | {least:.0f} | "
                    f"{float(np.median([r[4] for r in rows])):.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
