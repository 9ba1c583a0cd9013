"""Targets of token ids behind files and servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save_model

import unsoftmax
from unsoftmax import ModelFileError
from unsoftmax.oracles import FunctionOracle, OracleSpec, TokenIds
from unsoftmax.oracles.http import http_oracle
from unsoftmax.oracles.onnx_file import OnnxOracle
from unsoftmax.serve import ModelServer

MODEL = unsoftmax.random_token_heads(50, 4, seed=3)
IDS: Any = np.random.default_rng(0).integers(0, 50, (7, 5))


def test_an_onnx_file_of_ids_tells_its_vocabulary(tmp_path: Path) -> None:
    oracle = OnnxOracle(MODEL.save_onnx(tmp_path / "model"))
    assert oracle.spec.domain == TokenIds(50)
    assert oracle.spec.width is None
    np.testing.assert_allclose(oracle(IDS), MODEL(IDS), atol=1e-13)


def _onnx(path: Path, shape: list[Any], kind: int = TensorProto.INT64) -> Path:
    """Mean of ids, without a table."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["numbers"], to=TensorProto.DOUBLE),
        helper.make_node("ReduceMean", ["numbers"], ["answers"], axes=[1], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("ids", kind, shape)]
    outputs = [helper.make_tensor_value_info("answers", TensorProto.DOUBLE, ["batch"])]
    graph = helper.make_graph(nodes, "mean", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 9
    save_model(proto, str(path))
    return path


def test_where_no_table_tells_the_vocabulary_the_user_does(tmp_path: Path) -> None:
    path = _onnx(tmp_path / "mean.onnx", ["batch", "length"], TensorProto.INT32)
    assert OnnxOracle(path).spec.domain is None
    oracle = OnnxOracle(path, vocabulary=50)
    assert oracle.spec.domain == TokenIds(50)
    assert oracle(IDS).tolist() == IDS.mean(axis=1).tolist()


@pytest.mark.parametrize("shape", [["batch", 8], ["batch", "length", 3], [4, "length"]])
def test_ids_of_other_shapes_are_refused(tmp_path: Path, shape: list[Any]) -> None:
    with pytest.raises(ModelFileError, match="token ids must be"):
        OnnxOracle(_onnx(tmp_path / "mean.onnx", shape))


@pytest.mark.parametrize("binary", [True, False])
def test_a_server_takes_ids_as_int64(binary: bool) -> None:
    served = FunctionOracle(MODEL, OracleSpec(domain=TokenIds(50)))
    with ModelServer(served, binary=binary) as server:
        oracle = http_oracle(server.url)
        assert oracle.takes_ids
        np.testing.assert_array_equal(oracle(IDS), MODEL(IDS))
        with pytest.raises(unsoftmax.OracleFault, match="token ids must be from 0 to 49"):
            oracle(IDS + 50)
        oracle.close()
