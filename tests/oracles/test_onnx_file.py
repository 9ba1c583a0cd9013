from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unsoftmax
from unsoftmax import ModelFileError, OnnxOracle, OracleFault, UsageError
from unsoftmax.oracles import identity, pins_content

BATCH = np.random.default_rng(0).standard_normal((5, 3, 4))
HEAD = unsoftmax.random_single_head(4, 2, seed=0, biases=True)


def sums(
    path: Path,
    shape: list[Any],
    kind: int = TensorProto.DOUBLE,
    *,
    inputs: int = 1,
    outputs: int = 1,
    keep: int = 0,
) -> Path:
    """A file whose answers are the sums of all entries of a sequence."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [len(shape) - 1], range(1, len(shape)))
    nodes = [helper.make_node("ReduceSum", ["x0", "axes"], [f"y{i}"], keepdims=keep) for i in range(outputs)]
    nodes += [helper.make_node("Identity", [f"x{i}"], [f"unused{i}"]) for i in range(1, inputs)]
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info(f"x{i}", kind, shape) for i in range(inputs)],
        [helper.make_tensor_value_info(f"y{i}", kind, None) for i in range(outputs)],
        [axes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("external_data", [False, True])
def test_a_file_answers_as_the_model_that_it_came_from(tmp_path: Path, external_data: bool) -> None:
    oracle = unsoftmax.as_oracle(HEAD.save_onnx(tmp_path / "head.onnx", external_data=external_data))
    assert (oracle.spec.width, oracle.spec.outputs) == (4, None)
    np.testing.assert_allclose(oracle(BATCH), HEAD(BATCH), rtol=1e-13)


def test_weights_in_a_second_file_are_part_of_the_identity(tmp_path: Path) -> None:
    path = HEAD.save_onnx(tmp_path / "head.onnx", external_data=True)
    before = identity(OnnxOracle(path))
    assert pins_content(before)
    data = Path(f"{path}.data")
    content = bytearray(data.read_bytes())
    content[3] ^= 1
    data.write_bytes(content)
    assert identity(OnnxOracle(path)) != before
    data.unlink()
    with pytest.raises(ModelFileError, match=r"head.onnx.data, which cannot be read"):
        OnnxOracle(path)


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = HEAD.save_onnx(tmp_path / "inner" / "head.onnx", external_data=True)
    Path(f"{path}.data").replace(tmp_path / "elsewhere")
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../elsewhere"
    onnx.save(model, str(path))
    with pytest.raises(ModelFileError, match="outside its own folder"):
        OnnxOracle(path)


def test_float32_vectors_and_one_at_a_time(tmp_path: Path) -> None:
    oracle = unsoftmax.as_oracle(sums(tmp_path / "a.onnx", ["b", "n", 4], TensorProto.FLOAT))
    np.testing.assert_allclose(oracle(BATCH), BATCH.sum(axis=(1, 2)), rtol=1e-5)
    with pytest.raises(OracleFault, match="pass input_bound"):
        oracle(np.full((1, 1, 4), 1e200))
    single = unsoftmax.as_oracle(sums(tmp_path / "b.onnx", [1, "n", 4]))
    assert single.spec.max_batch == 1
    np.testing.assert_allclose(unsoftmax.Ledger(single).ask(BATCH), BATCH.sum(axis=(1, 2)))
    vectors = unsoftmax.SingleHead(np.eye(4), np.eye(4)[:, :3])
    assert unsoftmax.as_oracle(vectors.save_onnx(tmp_path / "c.onnx")).spec.outputs == 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"shape": ["b", "n", 4], "kind": TensorProto.FLOAT16},
            "export the model with a double or float input",
        ),
        ({"shape": ["b", 4]}, "2 dimensions"),
        ({"shape": ["b", 16, 4]}, "dynamic batch and length"),
        ({"shape": [8, "n", 4]}, "dynamic batch and length"),
        ({"shape": ["b", "n", 4], "inputs": 2}, "has the inputs"),
        ({"shape": ["b", "n", 4], "outputs": 2}, "choose one"),
    ],
)
def test_models_that_are_no_target_are_refused(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ModelFileError, match=match):
        OnnxOracle(sums(tmp_path / "a.onnx", **options))


def test_one_of_several_outputs(tmp_path: Path) -> None:
    path = sums(tmp_path / "a.onnx", ["b", "n", 4], outputs=2)
    np.testing.assert_allclose(OnnxOracle(path, output="y1")(BATCH), BATCH.sum(axis=(1, 2)))
    with pytest.raises(UsageError, match="has no output 'z'"):
        OnnxOracle(path, output="z")


def test_what_is_no_answer_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(OracleFault, match="shape"):
        OnnxOracle(sums(tmp_path / "a.onnx", ["b", "n", 4], keep=1))(BATCH)
    with pytest.raises(OracleFault, match="failed on a batch"):
        OnnxOracle(sums(tmp_path / "b.onnx", ["b", "n", 4]))(BATCH[:, :, :3])


@pytest.mark.parametrize("content", [b"", b"text, not a model", b"\x80\x04\x95" + bytes(100), bytes(1000)])
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        OnnxOracle(path)
    with pytest.raises(UsageError, match="there is no file"):
        OnnxOracle(tmp_path / "absent.onnx")


def test_truncated_files(tmp_path: Path) -> None:
    path = HEAD.save_onnx(tmp_path / "a.onnx")
    whole = path.read_bytes()
    for size in range(1, len(whole) - 1, max(1, len(whole) // 12)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            OnnxOracle(path)
