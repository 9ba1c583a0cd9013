"""Does rounding to 32 bits stop extraction? The same head behind answers in float64, answers stored in
float32, and a layer of torch that computes every step in float32.

python -m benchmarks.rounding_defence [--seeds 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import unsoftmax


def head(seed: int) -> tuple[Any, unsoftmax.Model]:
    model = unsoftmax.random_single_head(16, 4, seed=seed)
    return unsoftmax.as_oracle(model), model


def stored(seed: int) -> tuple[Any, unsoftmax.Model]:
    oracle, model = head(seed)
    return unsoftmax.LowPrecision(oracle, "float32"), model


def layer(dtype: torch.dtype) -> Callable[[int], tuple[Any, unsoftmax.Model]]:
    def make(seed: int) -> tuple[Any, unsoftmax.Model]:
        torch.manual_seed(seed)
        module = torch.nn.MultiheadAttention(16, 2, batch_first=True, dtype=dtype).eval()
        readout = torch.randn(16, dtype=dtype)
        oracle = unsoftmax.TorchOracle(module, readout=readout)
        return oracle, unsoftmax.from_torch(module, readout=readout.double().numpy())

    return make


CASES: dict[str, Callable[[int], tuple[Any, unsoftmax.Model]]] = {
    "one head, answers in float64": head,
    "one head, answers stored in float32": stored,
    "nn.MultiheadAttention(16, 2) in float64": layer(torch.float64),
    "nn.MultiheadAttention(16, 2) in float32": layer(torch.float32),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print("| target | recovered | queries a parameter, median | worst relative error | bound covers |")
    print("|---|---|---|---|---|")
    for name, make in CASES.items():
        costs, errors, covered = [], [], 0
        for seed in seeds:
            oracle, truth = make(seed)
            result = unsoftmax.recover(oracle, seed=seed)
            if result.model is None:
                continue
            errors.append(truth.distance(result.model))
            covered += result.error_bound is not None and errors[-1] <= result.error_bound
            costs.append(result.queries.learning / truth.parameters)
        print(
            f"| {name} | {len(errors)} of {len(seeds)} | {np.median(costs):.1f} | "
            f"{max(errors, default=np.nan):.0e} | {covered} of {len(errors)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
