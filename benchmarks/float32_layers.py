"""Layers of torch as they run, in float32 and bfloat16: recovered up to their own rounding.

    python -m benchmarks.float32_layers            # the grid of the page "arithmetic"
    python -m benchmarks.float32_layers --fast     # a few seeds

own: deviation (root mean square) of the layer from its float64 copy on sequences of 2 to 64 Gaussian rows.
p: degrees of freedom; m: outputs. error: the largest relative one of any W, w0 (against W), v or c, so that
of W is no larger.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.oracles.torch_module import TorchOracle


@dataclass(frozen=True)
class Case:
    """A kind of layer, and how many seeds of it."""

    width: int
    heads: int
    vector: bool
    seeds: int
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        arithmetic = str(self.dtype).removeprefix("torch.")
        return f"{arithmetic} d={self.width} H={self.heads} {'vectors' if self.vector else 'numbers'}"


GRID = (
    Case(16, 2, False, 100),
    Case(32, 4, False, 20),
    Case(64, 4, False, 5),
    Case(16, 2, True, 100),
    Case(32, 4, True, 20),
    Case(64, 4, True, 5),
    Case(64, 1, False, 5),
    Case(16, 2, False, 25, torch.bfloat16),
    Case(16, 2, True, 25, torch.bfloat16),
    Case(16, 2, False, 25, torch.float16),
    Case(16, 2, True, 25, torch.float16),
)


def make_layer(case: Case, seed: int) -> torch.nn.MultiheadAttention:
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(case.width, case.heads, batch_first=True)
    with torch.no_grad():
        layer.in_proj_bias.copy_(0.3 * torch.randn(3 * case.width))
        layer.out_proj.bias.copy_(0.3 * torch.randn(case.width))
    return layer.eval().to(case.dtype)


def run(case: Case, seed: int) -> dict[str, Any]:
    """One recovery through `unsoftmax.recover`, and how far it is from the truth."""
    layer = make_layer(case, seed)
    readout = None
    if not case.vector:
        readout = np.random.default_rng(seed + 991).standard_normal(case.width) / np.sqrt(case.width)
    oracle, began = TorchOracle(layer, readout=readout), time.process_time()
    result = unsoftmax.recover(oracle, seed=seed)
    spent = time.process_time() - began
    learning = result.queries.total - sum(
        result.queries.by_phase.get(phase, 0) for phase in ("identify", "verification")
    )
    double = TorchOracle(copy.deepcopy(layer).double(), readout=readout)
    truth = truth_of(layer, readout)
    price = learning / truth.parameters * (case.width if case.vector else 1)
    row: dict[str, Any] = {"seed": seed, "status": str(result.status), "price": price, "seconds": spent}
    row["reason"] = result.reason
    if result.model is not None and result.error_bound is not None:
        exact = truth if case.heads > 1 else _alone(truth)
        error = result.model.distance(exact)
        row |= {"error": error, "covered": error <= result.error_bound}
        row["over_own"] = deviation_over_own(
            result.model, oracle, double, case.width, layer.out_proj.weight.dtype
        )
    return row


def deviation_over_own(
    model: Any, layer: TorchOracle, double: TorchOracle, d: int, dtype: torch.dtype
) -> float:
    rng = np.random.default_rng(77)
    mine, own = [], []
    for length in (2, 8, 32, 64):
        X = torch.as_tensor(rng.standard_normal((64, length, d))).to(dtype).double().numpy()
        right = double(X)
        mine.append(np.ravel(model(X) - right))
        own.append(np.ravel(layer(X) - right))
    return float(np.linalg.norm(np.concatenate(mine)) / np.linalg.norm(np.concatenate(own)))


def truth_of(layer: torch.nn.MultiheadAttention, readout: Array | None) -> MultiHead:
    d, H = int(layer.embed_dim), int(layer.num_heads)
    r = d // H
    named = {name: part.detach().double().numpy() for name, part in layer.named_parameters()}
    weights, biases, out = named["in_proj_weight"], named["in_proj_bias"], named["out_proj.weight"].T
    constant = named["out_proj.bias"]
    if readout is not None:
        out, constant = out @ readout, constant @ readout
    heads = []
    for h in range(H):
        part = slice(h * r, (h + 1) * r)
        keys = weights[d : 2 * d][part] / np.sqrt(r)
        values = weights[2 * d :][part].T @ out[part]
        heads.append(SingleHead(keys.T @ weights[:d][part], values, w0=keys.T @ biases[:d][part]))
    return MultiHead(heads, constant + biases[2 * d :] @ out)


def _alone(model: MultiHead) -> SingleHead:
    head = model.heads[0]
    return SingleHead(head.matrix, head.v, head.w0, c=model.c)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--fast", action="store_true", help="at most three seeds of the small layers")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--most", type=int, default=None, help="at most so many seeds of every kind")
    parser.add_argument("--largest", type=int, default=None, help="no layers wider than this")
    parser.add_argument("--only", nargs="+", help="rows of the table, such as 'float32 d=16 H=2 numbers'")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = ("layer", "answers", "WITHIN_BOUND", "queries, median / most", "error, median / worst")
    print("| " + " | ".join((*columns, "covered", "deviation / own, median / worst", "CPU s")) + " |")
    print("|---|---|---|---|---|---|---|---|")
    for case in GRID:
        if case.width > (16 if options.fast else options.largest or case.width):
            continue
        if options.only and case.name not in options.only:
            continue
        seeds = min(case.seeds, 3 if options.fast else case.seeds, options.most or case.seeds)
        rows = [run(case, seed) for seed in range(options.first, options.first + seeds)]
        print(_line(case, rows), flush=True)
        for row in rows:
            if not row.get("covered"):
                print(f"seed {row['seed']}: {row['status']}, {row['reason']}", file=sys.stderr, flush=True)


def _line(case: Case, rows: list[dict[str, Any]]) -> str:
    good = [row for row in rows if "error" in row]
    unit = "p/m" if case.vector else "p"
    cells = [
        *case.name.rsplit(" ", 1),
        f"{sum(row['status'] == 'WITHIN_BOUND' for row in rows)} of {len(rows)}",
        f"{np.median([row['price'] for row in rows]):.2f} / {max(row['price'] for row in rows):.2f} {unit}",
    ]
    if good:
        errors, over = [row["error"] for row in good], [row["over_own"] for row in good]
        cells += [
            f"{np.median(errors):.1e} / {max(errors):.1e}",
            f"{sum(row['covered'] for row in good)} of {len(good)}",
            f"{np.median(over):.2f} / {max(over):.2f}",
            f"{np.median([row['seconds'] for row in rows]):.1f}",
        ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
