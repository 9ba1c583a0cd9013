"""Float32 layers that are hard to take apart: each is recovered within its bound, or ends UNRESOLVED with a
reason.

    python -m benchmarks.float32_hard                     # every kind, ten seeds, numbers and vectors
    python -m benchmarks.float32_hard --seeds 3 --first 500 --kinds "readouts equal"
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch

import unsoftmax
from benchmarks.float32_layers import Case, make_layer, truth_of
from unsoftmax.oracles.torch_module import TorchOracle

Layer = torch.nn.MultiheadAttention
_WIDTH = 16


def _values_of(layer: Layer, head: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views of the rows of a head's values, their biases, and its columns of the output matrix."""
    r, d = layer.head_dim, layer.embed_dim
    rows, columns = (slice(2 * d + head * r, 2 * d + (head + 1) * r), slice(head * r, (head + 1) * r))
    return layer.in_proj_weight[rows], layer.in_proj_bias[rows], layer.out_proj.weight[:, columns]


def _near(sign: float, apart: float) -> Callable[[Layer], None]:
    """The second head's values are those of the first, up to the sign and a relative distance."""

    def change(layer: Layer) -> None:
        for one, two in zip(_values_of(layer, 0), _values_of(layer, 1), strict=True):
            two.copy_(one + apart * two)
        _values_of(layer, 1)[2].mul_(sign)

    return change


def _loud(layer: Layer) -> None:
    _values_of(layer, 0)[2].mul_(300.0)


def _strong(layer: Layer) -> None:
    layer.in_proj_weight[: layer.embed_dim].mul_(20.0)
    layer.in_proj_bias[: layer.embed_dim].mul_(20.0)


def _as_it_is(_: Layer) -> None:
    pass


KINDS: dict[str, tuple[int, Callable[[Layer], None]]] = {
    "readouts equal": (2, _near(1.0, 0.0)),
    "readouts opposite": (2, _near(-1.0, 0.0)),
    "readouts 1e-2 apart": (2, _near(1.0, 1e-2)),
    "readouts 1e-2 from opposite": (2, _near(-1.0, 1e-2)),
    "readouts 1e-4 apart": (2, _near(1.0, 1e-4)),
    "one head 300 times louder": (2, _loud),
    "query gain 20": (2, _strong),
    "H = d": (_WIDTH, _as_it_is),
    "H = d/2": (_WIDTH // 2, _as_it_is),
}


def run(kind: str, vector: bool, seed: int) -> tuple[str, str]:
    """(outcome, reason)."""
    heads, change = KINDS[kind]
    layer = make_layer(Case(_WIDTH, heads, vector, 1), seed)
    with torch.no_grad():
        change(layer)
    readout = None
    if not vector:
        readout = np.random.default_rng(seed + 991).standard_normal(_WIDTH) / np.sqrt(_WIDTH)
    try:
        result = unsoftmax.recover(TorchOracle(layer, readout=readout), seed=seed)
    except Exception as error:
        return f"raised {type(error).__name__}", str(error)
    if result.status is not unsoftmax.Status.WITHIN_BOUND or result.error_bound is None:
        return str(result.status), result.reason
    covered = result.unwrap().distance(truth_of(layer, readout)) <= result.error_bound
    return "WITHIN_BOUND" if covered else "WITHIN_BOUND, but the bound does not cover", result.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--reasons", action="store_true", help="print why a layer was not recovered")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| layer (d=16) | answers | outcomes | CPU s a layer |\n|---|---|---|---|")
    for kind in options.kinds:
        for vector in (False, True):
            began = time.process_time()
            seeds = range(options.first, options.first + options.seeds)
            found = [run(kind, vector, seed) for seed in seeds]
            spent = (time.process_time() - began) / options.seeds
            outcomes = ", ".join(f"{n} {name}" for name, n in Counter(name for name, _ in found).items())
            print(f"| {kind} | {'vectors' if vector else 'numbers'} | {outcomes} | {spent:.1f} |", flush=True)
            if options.reasons:
                for seed, (name, reason) in zip(seeds, found, strict=True):
                    if name != "WITHIN_BOUND":
                        print(f"  seed {seed}, {name}: {reason}", flush=True)


if __name__ == "__main__":
    main()
