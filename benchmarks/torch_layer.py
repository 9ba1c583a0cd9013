"""A random nn.MultiheadAttention (d = 64, 4 heads, float64, all biases) asked through torch: recovered,
rebuilt, and compared on all rows.

    python -m benchmarks.torch_layer                  # 3 seeds
    python -m benchmarks.torch_layer --width 32 --seeds 1

Scalar answers: a random weighted sum of the last row's outputs; the rebuilt layer gives it as its first
output.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from unsoftmax import MultiHead, SingleHead, from_torch, recover, to_torch

Array = NDArray[np.float64]


def random_layer(d: int, heads: int, seed: int) -> torch.nn.MultiheadAttention:
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, heads, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_bias.normal_(0, 0.1)
        layer.out_proj.bias.normal_(0, 0.1)
    return layer


def all_rows(layer: torch.nn.MultiheadAttention, X: Array) -> Array:
    with torch.no_grad():
        rows = torch.from_numpy(X)
        return np.asarray(layer(rows, rows, rows, need_weights=False)[0].numpy())


def as_first_output(model: MultiHead) -> MultiHead:
    """The same function as the first of d outputs, for a layer to carry it."""
    first = np.eye(model.width)[0]
    return MultiHead(
        [SingleHead(head.matrix, np.outer(head.v, first), head.w0) for head in model.heads],
        np.asarray(model.c) * first,
    )


def run(d: int, heads: int, seed: int, vector: bool) -> None:
    layer = random_layer(d, heads, seed)
    rng = np.random.default_rng([seed, d])
    readout = rng.standard_normal(d)

    def box(X: Array) -> Array:
        with torch.no_grad():
            rows = torch.from_numpy(X)
            out: Array = layer(rows[:, -1:], rows, rows, need_weights=False)[0][:, 0].numpy()
            return out if vector else out @ readout

    result = recover(box, width=d, outputs=d if vector else None, seed=seed)
    kind = "vector" if vector else "scalar"
    if not isinstance(result.model, MultiHead):
        print(f"| {kind} | {seed} | {result.status} | | | | | {result.reason[:100]} |", flush=True)
        return
    model = result.model
    truth = from_torch(layer) if vector else from_torch(layer, readout)
    rebuilt = to_torch(model if vector else as_first_output(model), heads)
    deviation = size = 0.0
    for length in (1, 2, 9, 40):
        X = rng.standard_normal((6, length, d))
        there, here = all_rows(layer, X), all_rows(rebuilt, X)
        there, here = (there, here) if vector else (there @ readout, here[:, :, 0])
        deviation, size = (
            max(deviation, float(np.abs(there - here).max())),
            max(size, float(np.abs(there).max())),
        )
    paid = result.queries.learning
    price = paid * (d if vector else 1) / truth.parameters
    print(
        f"| {kind} | {seed} | {result.status} | {len(model.heads)} | {paid:,} ({price:.2f}) | "
        f"{truth.distance(model):.0e} | {result.error_bound:.0e} | {deviation:.0e} of {size:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fast", action="store_true", help="width 16, one seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| answers | seed | status | heads | queries (times outputs / parameters) | error | bound | rebuilt "
        "layer deviates on all rows by |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for vector in (False, True):
        for seed in range(1 if options.fast else options.seeds):
            run(16 if options.fast else options.width, options.heads, seed, vector)


if __name__ == "__main__":
    main()
