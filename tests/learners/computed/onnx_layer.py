"""An nn.MultiheadAttention as an ONNX file whose every step is computed in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from unsoftmax.arrays import Array


def save_float32_layer(layer: torch.nn.MultiheadAttention, path: Path, readout: Array | None = None) -> Path:
    """Answers are the last row, or its product with the readout."""
    d, H = int(layer.embed_dim), int(layer.num_heads)
    r = d // H
    named = {name: part.detach().float().numpy() for name, part in layer.named_parameters()}
    weights, biases = named["in_proj_weight"].reshape(3, H, r, d), named["in_proj_bias"].reshape(3, H, 1, r)
    arrays = {
        "end": np.array([2**31], np.int64),
        "start": np.array([-1], np.int64),
        "rows": np.array([1], np.int64),
        "scale": np.float32(1.0 / np.sqrt(r)),
        "out_w": named["out_proj.weight"].T,
        "out_b": named["out_proj.bias"],
    }
    nodes = [helper.make_node("Slice", ["x", "start", "end", "rows"], ["asking"])]
    for h in range(H):
        for kind, (letter, source) in enumerate((("q", "asking"), ("k", "x"), ("v", "x"))):
            name = f"{letter}{h}"
            arrays[f"{name}w"], arrays[f"{name}b"] = weights[kind, h].T, biases[kind, h]
            nodes.append(helper.make_node("MatMul", [source, f"{name}w"], [f"{name}p"]))
            nodes.append(helper.make_node("Add", [f"{name}p", f"{name}b"], [name]))
        nodes += [
            helper.make_node("Mul", [f"q{h}", "scale"], [f"s{h}"]),
            helper.make_node("Transpose", [f"k{h}"], [f"t{h}"], perm=[0, 2, 1]),
            helper.make_node("MatMul", [f"s{h}", f"t{h}"], [f"scores{h}"]),
            helper.make_node("Softmax", [f"scores{h}"], [f"a{h}"], axis=-1),
            helper.make_node("MatMul", [f"a{h}", f"v{h}"], [f"z{h}"]),
        ]
    nodes += [
        helper.make_node("Concat", [f"z{h}" for h in range(H)], ["z"], axis=2),
        helper.make_node("MatMul", ["z", "out_w"], ["mixed"]),
        helper.make_node("Add", ["mixed", "out_b"], ["row"]),
        helper.make_node("Squeeze", ["row", "rows"], ["y"]),
    ]
    answer: list[int | str] = ["B", d]
    if readout is not None:
        arrays["readout"] = readout.astype(np.float32)
        nodes[-1].output[0] = "last"
        nodes.append(helper.make_node("MatMul", ["last", "readout"], ["y"]))
        answer = ["B"]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "N", d])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, answer)],
        [numpy_helper.from_array(np.ascontiguousarray(part), name) for name, part in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path
