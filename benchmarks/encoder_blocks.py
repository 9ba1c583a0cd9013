"""Whole pre-norm encoder layers of torch, from the answers of their last row: right, queries, errors,
seconds.

python -m benchmarks.encoder_blocks [--quick]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

import unsoftmax
from unsoftmax.models import EncoderBlock, block_from_torch

CASES = ((16, 2, 32, 10), (32, 4, 64, 10), (64, 4, 256, 3))


def layer(d: int, heads: int, neurons: int, activation: str, seed: int) -> torch.nn.TransformerEncoderLayer:
    """A layer whose gains and biases are drawn as well."""
    torch.manual_seed(seed)
    made = torch.nn.TransformerEncoderLayer(
        d, heads, neurons, 0.0, activation, batch_first=True, norm_first=True, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name and "weight" in name:
                parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
            elif "bias" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return made


def measure(
    d: int, heads: int, neurons: int, activation: str, seed: int
) -> tuple[bool, float, float, float, float]:
    """(right, queries over parameters, distance, largest deviation on fresh sequences, seconds)."""
    target = layer(d, heads, neurons, activation, seed)
    parameters = sum(p.numel() for p in target.parameters())
    start = time.perf_counter()
    result = unsoftmax.recover(target, seed=seed)
    seconds = time.perf_counter() - start
    if not isinstance(result.model, EncoderBlock):
        print(f"  seed {seed}: {result.status}: {result.reason}")
        return False, result.queries.total / parameters, np.inf, np.inf, seconds
    X = np.random.default_rng(seed).standard_normal((100, 5, d))
    answers = target(torch.tensor(X))[:, -1].detach().numpy()
    off = float(np.abs(result.model(X) - answers).max())
    distance = block_from_torch(target).distance(result.model)
    return result.status.recovered, result.queries.total / parameters, distance, off, seconds


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    cases = [(16, 2, 32, 2)] if "--quick" in arguments else CASES
    if len(arguments) >= 4 and arguments[0].isdigit():
        d, heads, neurons, seeds = (int(part) for part in arguments[:4])
        cases = [(d, heads, neurons, seeds)]
    torch.set_num_threads(1)
    print("| d, H, ff | activation | right | queries / parameters | worst parameter | deviation | seconds |")
    print("|---|---|---|---|---|---|---|")
    for d, heads, neurons, seeds in cases:
        for activation in ("relu", "gelu"):
            rows = [measure(d, heads, neurons, activation, seed) for seed in range(seeds)]
            right = sum(row[0] for row in rows)
            price = [row[1] for row in rows]
            worst, off = max(row[2] for row in rows), max(row[3] for row in rows)
            seconds = float(np.median([row[4] for row in rows]))
            print(
                f"| {d}, {heads}, {neurons} | {activation} | {right}/{seeds} "
                f"| {min(price):.2f}-{max(price):.2f} | {worst:.0e} | {off:.0e} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
