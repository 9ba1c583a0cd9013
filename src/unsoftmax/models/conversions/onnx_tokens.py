"""Token models as ONNX graphs: int64 ids (batch, length) in, float64 answers out."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from unsoftmax.models.conversions.onnx_graph import Graph, finished
from unsoftmax.models.tokens.token_head import TokenHead
from unsoftmax.models.tokens.token_heads import TokenHeads

__all__ = ["token_onnx_model"]


class _TokenGraph(Graph):
    """Lookups in tables of tokens and of places."""

    def places(self, table: Any) -> str:
        """The first rows of a table, as many as the sequence is long."""
        length = self.add("Shape", "ids", start=1, end=2)
        return self.add(
            "Slice", self.constant(table), self.constant(np.array([0])), length, self.constant(np.array([0]))
        )

    def token_head(self, head: TokenHead, last: str) -> str:
        """softmax(keys[ids]·queries[last]) · values[ids], shape (batch, m)."""
        V = head.vocabulary
        keys = self.add("Gather", self.constant(head.keys), "ids")
        asked = self.add("Gather", self.constant(head.queries), last)
        values = self.add("Gather", self.constant(head.values.reshape(V, -1)), "ids")
        if head.positions is not None:
            L = head.positions.longest
            keys = self.add("Add", keys, self.places(head.positions.keys))
            values = self.add("Add", values, self.places(head.positions.values.reshape(L, -1)))
            of_place = self.places(head.positions.queries)
            asked = self.add("Add", asked, self.add("Gather", of_place, self.constant(np.array(-1)), axis=0))
        column = self.add("Unsqueeze", asked, self.constant(np.array([2])))
        weights = self.add("Softmax", self.add("MatMul", keys, column), axis=1)
        return self.add(
            "ReduceSum", self.add("Mul", weights, values), self.constant(np.array([1])), keepdims=0
        )


def token_onnx_model(model: TokenHeads) -> Any:
    """The checked ONNX model: 'ids' (batch, length) to 'answers' (batch,) or (batch, m)."""
    graph = _TokenGraph()
    last = graph.add("Gather", "ids", graph.constant(np.array(-1)), axis=1)
    constant = np.broadcast_to(np.asarray(model.c, dtype=np.float64), (model.outputs or 1,)).copy()
    answers = graph.add(
        "Sum", *(graph.token_head(head, last) for head in model.heads), graph.constant(constant)
    )
    return finished(
        graph, model, answers, helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])
    )
