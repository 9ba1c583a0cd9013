"""Models for where their users live: a torch module, an ONNX file, a numpy archive."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.files import replace_file
from unsoftmax.models.matrices import Factors
from unsoftmax.models.single_head import SingleHead
from unsoftmax.oracles import Array

if TYPE_CHECKING:
    from torch import nn

__all__ = ["heads_and_constant", "save_npz", "save_onnx", "to_torch"]

_OPSET, _IR = 17, 9  # old enough for every runtime of the last years


def heads_and_constant(model: Model) -> tuple[Sequence[SingleHead], Array]:
    """The heads that add up to the model, and its constant; `UsageError` for models that are no sum of heads."""
    if isinstance(model, SingleHead):
        return (model,), np.asarray(model.c)
    heads = getattr(model, "heads", None)
    if heads is None or not all(isinstance(head, SingleHead) for head in heads):
        raise UsageError(f"a {model.family} model cannot be written in this form; save it as .safetensors or .npz")
    return heads, np.asarray(getattr(model, "c", 0.0))


def to_torch(model: Model) -> nn.Module:
    """An nn.Module in float64 that maps (B, N, d) to the model's answers."""
    try:
        from unsoftmax.models.torch_heads import SumOfHeads
    except ImportError as error:
        raise UsageError("a torch module needs torch; install unsoftmax[torch]") from error
    return SumOfHeads(*heads_and_constant(model))


def save_npz(model: Model, path: str | Path) -> Path:
    """The arrays of the model and its family, as numpy's own archive; nothing in it needs pickle."""
    target = _named(path, ".npz")
    content = BytesIO()
    arrays: dict[str, Any] = dict(model.tensors())
    np.savez(content, family=np.array(model.family), **arrays)
    return replace_file(target, content.getvalue())


def save_onnx(model: Model, path: str | Path, *, external_data: bool = False) -> Path:
    """A float64 ONNX model 'sequences' (batch, length, d) -> 'answers'. external_data: weights in a second file, path + '.data'."""
    try:
        import onnx
    except ImportError as error:
        raise UsageError("an .onnx file needs onnx; install unsoftmax[onnx]") from error
    target = _named(path, ".onnx")
    proto = _graph(model, onnx)
    if not external_data:
        return replace_file(target, proto.SerializeToString())
    try:
        (target.parent / f"{target.name}.data").unlink(missing_ok=True)  # onnx appends to what it finds
        onnx.save_model(proto, str(target), save_as_external_data=True, location=f"{target.name}.data", size_threshold=64)  # axes stay inside
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another place") from error
    return target


def _graph(model: Model, onnx: Any) -> Any:
    """c + Σ over heads of softmax(X (W x_N + w0)) · X v, with factors kept as factors."""
    heads, constant = heads_and_constant(model)
    make, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes: list[Any] = [make.make_node("Gather", ["sequences", "last_index"], ["last"], axis=1)]
    weights: dict[str, Array] = {}
    for i, head in enumerate(heads):
        nodes += _head_nodes(make, weights, head, f"h{i}")
    weights["constant"] = np.broadcast_to(constant, heads[0].v.shape[1:] or (1,)).copy()
    nodes.append(make.make_node("Sum", [f"h{i}.answer" for i in range(len(heads))] + ["constant"], ["vectors"]))
    scalar = model.outputs is None
    nodes.append(make.make_node("Squeeze", ["vectors", "row_axis"], ["answers"]) if scalar else make.make_node("Identity", ["vectors"], ["answers"]))
    initializers = [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()]
    initializers += [onnx.numpy_helper.from_array(np.array(-1), "last_index"), onnx.numpy_helper.from_array(np.array([1]), "row_axis")]
    initializers += [onnx.numpy_helper.from_array(np.array([2]), "column_axis")]
    graph = make.make_graph(
        nodes,
        f"unsoftmax {model.family}",
        [make.make_tensor_value_info("sequences", double, ["batch", "length", model.width])],
        [make.make_tensor_value_info("answers", double, ["batch"] if scalar else ["batch", model.outputs])],
        initializers,
    )
    proto = make.make_model(graph, opset_imports=[make.make_opsetid("", _OPSET)], producer_name="unsoftmax")
    proto.ir_version = _IR
    onnx.checker.check_model(proto)
    return proto


def _head_nodes(make: Any, weights: dict[str, Array], head: SingleHead, name: str) -> list[Any]:
    node = make.make_node
    weights[f"{name}.v"] = head.v.reshape(head.width, -1)
    steps = [head.matrix.right, head.matrix.left.T] if isinstance(head.matrix, Factors) else [head.W.T]
    nodes, asked = [], "last"
    for k, step in enumerate(steps):
        weights[f"{name}.step{k}"] = step
        nodes.append(node("MatMul", [asked, f"{name}.step{k}"], [f"{name}.asked{k}"]))
        asked = f"{name}.asked{k}"
    if head.w0 is not None:
        weights[f"{name}.w0"] = head.w0
        nodes.append(node("Add", [asked, f"{name}.w0"], [f"{name}.biased"]))
        asked = f"{name}.biased"
    return [
        *nodes,
        node("Unsqueeze", [asked, "column_axis"], [f"{name}.column"]),
        node("MatMul", ["sequences", f"{name}.column"], [f"{name}.scores"]),
        node("Softmax", [f"{name}.scores"], [f"{name}.weights"], axis=1),
        node("MatMul", ["sequences", f"{name}.v"], [f"{name}.values"]),
        node("Mul", [f"{name}.weights", f"{name}.values"], [f"{name}.shares"]),
        node("ReduceSum", [f"{name}.shares", "row_axis"], [f"{name}.answer"], keepdims=0),
    ]


def _named(path: str | Path, suffix: str) -> Path:
    target = Path(path)
    return target if target.suffix == suffix else target.with_name(target.name + suffix)
