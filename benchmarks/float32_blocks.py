"""Whole encoder layers of torch that compute in float32, through `recover`: status, queries, coverage of the
bound, and deviation over the layer's own.

"own" is the root mean square deviation of the float32 layer from its float64 copy, on sequences of 2 to 64
Gaussian rows; "deviation" that of the recovered model from the float64 copy. As torch makes them, gains and
biases are one and zero; every other seed draws them.

python -m benchmarks.float32_blocks [--first 100] [--seeds 2] [--case post-relu] [--width 16 --heads 2
--neurons 32]
"""

from __future__ import annotations

import argparse
import copy
import time

import numpy as np
import torch

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.models import EncoderBlock, block_from_torch

CASES = ("pre-gelu", "post-relu", "pre-relu", "post-gelu")
_LENGTHS = (2, 5, 16, 64)


def layer(case: str, d: int, heads: int, neurons: int, seed: int) -> torch.nn.TransformerEncoderLayer:
    """As torch makes it; for even seeds gains and biases are drawn as well."""
    order, activation = case.split("-")
    torch.manual_seed(seed)
    made = torch.nn.TransformerEncoderLayer(
        d, heads, neurons, 0.0, activation, batch_first=True, norm_first=order == "pre"
    ).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters() if seed % 2 == 0 else ():
            if "norm" in name and "weight" in name:
                parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
            elif "bias" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return made


def answers(module: torch.nn.Module, X: Array, dtype: torch.dtype) -> Array:
    with torch.no_grad():
        return np.asarray(module(torch.tensor(X, dtype=dtype))[:, -1].double().numpy())


def deviation_over_own(module: torch.nn.Module, model: EncoderBlock, seed: int) -> float:
    """Of the model, against the layer's float64 copy, over that of the layer itself."""
    exact, rng = copy.deepcopy(module).double(), np.random.default_rng(seed)
    own, off = [], []
    for length in _LENGTHS:
        X = rng.standard_normal((100, length, model.width)).astype(np.float32).astype(np.float64)
        truth = answers(exact, X, torch.float64)
        own.append(answers(module, X, torch.float32) - truth)
        off.append(model(X) - truth)
    return rms(np.array(off)) / rms(np.array(own))


def measure(case: str, size: tuple[int, int, int], seed: int) -> dict[str, float]:
    """One recovery. covered: whether the bound holds for the canonical parameters, eps of norms included."""
    target = layer(case, *size, seed)
    parameters = sum(p.numel() for p in target.parameters())
    start = time.process_time()
    result = unsoftmax.recover(target, seed=seed)
    seconds = time.process_time() - start
    row = {"right": 0.0, "queries": result.queries.total / parameters, "seconds": seconds}
    if not isinstance(result.model, EncoderBlock) or result.error_bound is None:
        print(f"  {case} seed {seed}: {result.status}: {result.reason}", flush=True)
        return row
    distance = block_from_torch(copy.deepcopy(target).double()).distance(result.model)
    off = deviation_over_own(target, result.model, seed)
    row |= {"right": 1.0, "distance": distance, "bound": result.error_bound, "deviation": off}
    shown = {name: f"{value:.2g}" for name, value in row.items()}
    print(f"  {case} seed {seed}: {shown}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--case", choices=CASES, action="append")
    for name, default in (("width", 16), ("heads", 2), ("neurons", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = (options.width, options.heads, options.neurons)
    table = []
    for case in options.case or CASES:
        rows = [measure(case, size, options.first + i) for i in range(options.seeds)]
        right = [row for row in rows if row["right"]]
        covered = sum(row["distance"] <= row["bound"] for row in right)
        off = [row["deviation"] for row in right] or [np.nan]
        price = [row["queries"] for row in rows]
        worst = max((row["distance"] for row in right), default=np.nan)
        table.append(
            f"| {case} | {', '.join(map(str, size))} | {len(right)}/{len(rows)} | {np.median(price):.1f} / "
            f"{max(price):.1f} | {covered}/{len(right)} | {worst:.0e} | {np.median(off):.2f} / "
            f"{max(off):.2f} | {np.median([row['seconds'] for row in rows]):.0f} |"
        )
    print(
        "| layer | d, H, ff | WITHIN_BOUND | queries / p, median / most | covered | worst parameter | "
        "deviation / own, median / worst | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(table))


if __name__ == "__main__":
    main()
