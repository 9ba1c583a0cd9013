"""Models as ONNX graphs, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from unsoftmax.models.base import Model
from unsoftmax.models.conversions.export_parts import parts_of
from unsoftmax.models.matrices import Factors
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead

__all__ = ["Graph", "finished", "onnx_model"]

_OPSET, _IR = 17, 9  # old enough for every runtime of the last years


class Graph:
    """Nodes and constants, each named when it is added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output if output is not None else f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def head(self, head: SingleHead, last: str, rows: str = "sequences") -> str:
        """softmax(X (W x_N + w0)) · X V, with factors kept as factors."""
        steps = [head.matrix.right, head.matrix.left.T] if isinstance(head.matrix, Factors) else [head.W.T]
        asked = last
        for step in steps:
            asked = self.add("MatMul", asked, self.constant(step))
        if head.w0 is not None:
            asked = self.add("Add", asked, self.constant(head.w0))
        column = self.add("Unsqueeze", asked, self.constant(np.array([2])))
        weights = self.add("Softmax", self.add("MatMul", rows, column), axis=1)
        shares = self.add("Mul", weights, self.add("MatMul", rows, self.constant(head.v)))
        return self.add("ReduceSum", shares, self.constant(np.array([1])), keepdims=0)

    def network(self, network: ReluNetwork, rows: str) -> str:
        """Σ_k u_k relu(a_k·x + b_k) + linear·x + c, shape (batch, 1)."""
        hidden = self.add("MatMul", rows, self.constant(network.A.T))
        if network.b is not None:
            hidden = self.add("Add", hidden, self.constant(network.b))
        answers = self.add("MatMul", self.add("Relu", hidden), self.constant(network.u[:, None]))
        if network.linear is not None:
            answers = self.add(
                "Add", answers, self.add("MatMul", rows, self.constant(network.linear[:, None]))
            )
        return self.add("Add", answers, self.constant(np.array([network.c])))


def onnx_model(model: Model) -> Any:
    """The checked ONNX model of `model`: 'sequences' (batch, length, d) to 'answers' (batch,) or (batch,
    m)."""
    parts = parts_of(model)
    graph = Graph()
    last = graph.add("Gather", "sequences", graph.constant(np.array(0 if parts.first_row else -1)), axis=1)
    total = [graph.head(head, last) for head in parts.heads]
    if parts.residual:
        total.append(graph.add("Mul", last, graph.constant(np.array([parts.residual]))))
    if parts.skip is not None:
        total.append(graph.add("MatMul", last, graph.constant(parts.skip)))
    answers = graph.add("Sum", *total, graph.constant(parts.constant))
    if parts.network is not None:
        answers = graph.network(parts.network, answers)
    return finished(
        graph,
        model,
        answers,
        helper.make_tensor_value_info("sequences", TensorProto.DOUBLE, ["batch", "length", model.width]),
    )


def finished(graph: Graph, model: Model, answers: str, asked: Any) -> Any:
    """The checked model of a graph whose node `answers` is (batch, m), or (batch, 1) for one number each."""
    if model.outputs is None:
        graph.add("Squeeze", answers, graph.constant(np.array([1])), output="answers")
    else:
        graph.add("Identity", answers, output="answers")
    shape: list[str | int | None] = ["batch"] if model.outputs is None else ["batch", model.outputs]
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            f"unsoftmax {model.family}",
            [asked],
            [helper.make_tensor_value_info("answers", TensorProto.DOUBLE, shape)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="unsoftmax",
    )
    proto.ir_version = _IR
    onnx.checker.check_model(proto)
    return proto
