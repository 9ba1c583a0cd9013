"""Encoder blocks as ONNX graphs, in float64, of operators that runtimes have for it.

Runtimes lack the error function in float64, so GELU is written out by a Chebyshev expansion of erfc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.asking_row import AskingRow
from unsoftmax.models.conversions.onnx_graph import Graph, finished
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts.norms import LayerNorm, Norm
from unsoftmax.models.single_head import SingleHead

__all__ = ["block_onnx_model"]

_DEGREE = 34  # of the expansion of log(erfc(z)·exp(z²)/t) in t = 2/(2 + z) on z >= 0: off by 1e-15


def block_onnx_model(block: EncoderBlock) -> Any:
    """The checked ONNX model of a block: 'sequences' (batch, length, d) to 'answers' (batch, m)."""
    graph = _BlockGraph()
    rows = "sequences"
    if block.norm_first and block.first is not None:
        rows = graph.norm(block.first, rows)
    if block.asking is AskingRow.MEAN:
        plain = ["sequences"] if block.skip else []
        heads = [graph.head_of_every_row(head, rows) for head in block.attention.heads]
    else:
        asking_row = graph.constant(np.array(0 if block.first_row else -1))
        asking = graph.add("Gather", rows, asking_row, axis=1)
        plain = [graph.add("Gather", "sequences", asking_row, axis=1)] if block.skip else []
        heads = [graph.head(head, asking, rows) for head in block.attention.heads]
    constant = np.broadcast_to(np.asarray(block.attention.c, dtype=np.float64), (block.width,))
    y = graph.add("Sum", *plain, *heads, graph.constant(constant))
    if block.norm_first:
        seen = y if block.second is None else graph.norm(block.second, y)
        passed = y if block.readout is None else graph.add("MatMul", y, graph.constant(block.readout))
        answers = graph.add("Add", passed, graph.smooth_network(block.network, seen))
    else:
        middle = y if block.first is None else graph.norm(block.first, y)
        answers = graph.add("Add", middle, graph.smooth_network(block.network, middle))
        answers = answers if block.second is None else graph.norm(block.second, answers)
    if block.asking is AskingRow.MEAN:
        answers = graph.add("ReduceMean", answers, axes=[1], keepdims=0)
    shape: list[str | int | None] = ["batch", "length", block.width]
    return finished(
        graph, block, answers, helper.make_tensor_value_info("sequences", TensorProto.DOUBLE, shape)
    )


class _BlockGraph(Graph):
    """With norms and smooth activations."""

    def head_of_every_row(self, head: SingleHead, rows: str) -> str:
        """The head's answers with every row as the one that asks, (batch, length, m)."""
        asked = self.add("MatMul", rows, self.constant(head.W.T))
        if head.w0 is not None:
            asked = self.add("Add", asked, self.constant(head.w0))
        scores = self.add("MatMul", asked, self.add("Transpose", rows, perm=[0, 2, 1]))
        weights = self.add("Softmax", scores, axis=2)
        return self.add("MatMul", weights, self.add("MatMul", rows, self.constant(head.v)))

    def norm(self, norm: Norm, rows: str) -> str:
        """gain·x/√(mean x² + eps) + bias, of x without its mean for LayerNorm."""
        if isinstance(norm, LayerNorm):
            rows = self.add("Sub", rows, self.add("ReduceMean", rows, axes=[-1], keepdims=1))
        square = self.add("ReduceMean", self.add("Mul", rows, rows), axes=[-1], keepdims=1)
        size = self.add("Sqrt", self.add("Add", square, self.constant(np.array(norm.eps))))
        scaled = self.add("Mul", self.add("Div", rows, size), self.constant(norm.gain))
        return scaled if norm.bias is None else self.add("Add", scaled, self.constant(norm.bias))

    def smooth_network(self, network: object, rows: str) -> str:
        """Uᵀφ(A x + b) + L x + c."""
        if not isinstance(network, Network):
            raise UsageError(
                "a block with a gated network cannot be written as ONNX; save it as .safetensors or .npz"
            )
        hidden = self.add(
            "Add", self.add("MatMul", rows, self.constant(network.A.T)), self.constant(network.b)
        )
        active = self.activation(network.activation.name, hidden)
        parts = [self.add("MatMul", active, self.constant(network.U)), self.constant(np.asarray(network.c))]
        if network.linear is not None:
            parts.append(self.add("MatMul", rows, self.constant(network.linear)))
        return self.add("Sum", *parts)

    def activation(self, name: str, z: str) -> str:
        """φ(z) by the name that files use."""
        match name:
            case "relu":
                return self.add("Relu", z)
            case "tanh":
                return self.add("Tanh", z)
            case "sigmoid":
                return self.add("Sigmoid", z)
            case "silu":
                return self.add("Mul", z, self.add("Sigmoid", z))
            case "softplus":  # max(z, 0) + log(1 + exp(-|z|))
                small = self.add("Exp", self.add("Neg", self.add("Abs", z)))
                rest = self.add("Log", self.add("Add", small, self.number(1.0)))
                return self.add("Add", self.add("Relu", z), rest)
            case "gelu-tanh":
                cubed = self.add("Mul", z, self.add("Mul", z, z))
                inner = self.add("Add", z, self.add("Mul", cubed, self.number(0.044715)))
                tanh = self.add("Tanh", self.add("Mul", inner, self.number(float(np.sqrt(2.0 / np.pi)))))
                return self.add("Mul", self.half(z), self.add("Add", tanh, self.number(1.0)))
            case "gelu":
                return self.add("Mul", self.half(z), self.complementary_error(z))
        raise UsageError(
            f"the activation {name!r} cannot be written as ONNX; save the model as .safetensors or .npz"
        )

    def number(self, value: float) -> str:
        return self.constant(np.array(value))

    def half(self, z: str) -> str:
        return self.add("Mul", z, self.number(0.5))

    def complementary_error(self, z: str) -> str:
        """1 + erf(z/√2) = erfc(-z/√2), by Clenshaw's recurrence on |z|/√2 and a reflection."""
        size = self.add("Mul", self.add("Abs", z), self.number(float(np.sqrt(0.5))))
        t = self.add("Div", self.number(2.0), self.add("Add", size, self.number(2.0)))
        place = self.add("Sub", self.add("Mul", t, self.number(4.0)), self.number(2.0))  # 2x, x in [-1, 1]
        coefficients = _erfc_expansion()
        ahead, behind = self.number(float(coefficients[-1])), self.number(0.0)
        for coefficient in coefficients[-2:0:-1]:
            step = self.add("Sub", self.add("Mul", place, ahead), behind)
            ahead, behind = self.add("Add", step, self.number(float(coefficient))), ahead
        half = self.add("Mul", self.half(place), ahead)
        logs = self.add("Add", self.add("Sub", half, behind), self.number(float(coefficients[0])))
        exponent = self.add("Sub", logs, self.add("Mul", size, size))
        tail = self.add("Mul", t, self.add("Exp", exponent))  # erfc(|z|/√2)
        negative = self.add("Less", z, self.number(0.0))
        return self.add("Where", negative, tail, self.add("Sub", self.number(2.0), tail))


def _erfc_expansion() -> Array:
    """Chebyshev coefficients in x = 2t - 1 of log(erfcx(z)/t), z = 2/t - 2."""
    from scipy.special import erfcx

    x = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    t = (x + 1.0) / 2.0
    values = np.log(erfcx(2.0 / t - 2.0) / t)
    return np.asarray(np.linalg.solve(np.polynomial.chebyshev.chebvander(x, _DEGREE), values))
