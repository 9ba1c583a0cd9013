"""An .onnx file as an oracle, run by onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, OracleFault, UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.base import OracleSpec, checked_answers
from unsoftmax.oracles.domain import TokenIds

__all__ = ["OnnxOracle"]

_TYPES: dict[str, Any] = {
    "tensor(double)": np.float64,
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


class OnnxOracle:
    """A model file with one input (batch, length, d), float64 or float32, or token ids (batch, length), and
    answers (batch,), (batch, 1) or (batch, m).

    vocabulary: number of token ids; left out, the smallest table that the file looks ids up in tells it.

    Weights in files beside it are found as onnxruntime does, and only there. output: which one, where the
    model has several.

    >>> import tempfile, unsoftmax
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = unsoftmax.SingleHead([[2.0]], [1.0]).save_onnx(folder + "/head.onnx")
    ...     OnnxOracle(path)(np.ones((2, 1, 1)))
    array([1., 1.])
    """

    def __init__(self, path: str | Path, *, output: str | None = None, vocabulary: int | None = None) -> None:
        try:
            import onnx
            import onnxruntime  # type: ignore[import-untyped]
        except ImportError as error:
            raise UsageError(
                "an .onnx file needs onnx and onnxruntime; pip install 'unsoftmax[onnx]'"
            ) from error
        source = Path(path)
        if not source.is_file():
            raise UsageError(f"there is no file {source}")
        fingerprint = _fingerprint(source, onnx)
        options = onnxruntime.SessionOptions()
        # the same bits every time; these models are small
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                str(source), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ModelFileError(
                f"{source} is not a model that onnxruntime runs: {_first_line(error)}"
            ) from error
        self._input, self._type, width, one_at_a_time = self._read_input(source)
        self._output, outputs = self._read_output(source, output)
        self.takes_ids = self._type in (np.int64, np.int32)
        tokens = (
            vocabulary
            if vocabulary is not None or not self.takes_ids
            else _rows_of_tables(source, self._input, onnx)
        )
        self.spec = OracleSpec(
            width=width,
            outputs=outputs,
            max_batch=1 if one_at_a_time else None,
            name=source.name,
            fingerprint=fingerprint,
            arithmetic=FloatFormat.FLOAT32 if self._type is np.float32 else None,
            domain=TokenIds(tokens) if self.takes_ids and tokens is not None else None,
        )

    def _read_input(self, source: Path) -> tuple[str, Any, int | None, bool]:
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise ModelFileError(
                f"{source} has the inputs {[i.name for i in inputs]}; a target has one, (batch, length, d)"
            )
        found = inputs[0]
        if found.type not in _TYPES:
            raise ModelFileError(
                f"{source}: the input {found.name!r} is {found.type}; export the model with a double or "
                "float input, or with int64 token ids"
            )
        shape = [n if isinstance(n, int) and n > 0 else None for n in found.shape]
        if found.type in ("tensor(int64)", "tensor(int32)"):
            if len(shape) != 2 or shape[1] is not None or shape[0] not in (None, 1):
                raise ModelFileError(
                    f"{source}: the input {found.name!r} has shape {found.shape}; token ids must be (batch, "
                    "length), both dynamic"
                )
            return found.name, _TYPES[found.type], None, shape[0] == 1
        if len(shape) != 3:
            raise ModelFileError(
                f"{source}: the input {found.name!r} has {len(shape)} dimensions; a target takes (batch, "
                "length, d)"
            )
        if shape[1] is not None or shape[0] not in (None, 1):
            raise ModelFileError(
                f"{source}: the input {found.name!r} has the fixed shape {found.shape}; export it with "
                "dynamic batch and length"
            )
        return found.name, _TYPES[found.type], shape[2], shape[0] == 1

    def _read_output(self, source: Path, wanted: str | None) -> tuple[str, int | None]:
        outputs = {o.name: o for o in self._session.get_outputs()}
        if wanted is None and len(outputs) > 1:
            raise ModelFileError(
                f"{source} has the outputs {', '.join(outputs)}; choose one: OnnxOracle(path, output=...)"
            )
        if wanted is not None and wanted not in outputs:
            raise UsageError(f"{source} has no output {wanted!r}, only {', '.join(outputs)}")
        name = wanted if wanted is not None else next(iter(outputs))
        shape = outputs[name].shape
        return name, shape[1] if len(shape) == 2 and isinstance(shape[1], int) and shape[1] > 1 else None

    def __call__(self, batch: Array, /) -> Array:
        with np.errstate(over="ignore"):
            sequences = np.ascontiguousarray(batch, dtype=self._type)
        try:
            answers = self._session.run([self._output], {self._input: sequences})[0]
        except Exception as error:
            raise OracleFault(
                f"{self.spec.name} failed on a batch of shape {batch.shape}: {_first_line(error)}"
            ) from error
        return checked_answers(answers, len(batch), self.spec.outputs)


def _rows_of_tables(source: Path, ids: str, onnx: Any) -> int | None:
    """Rows of the smallest table in which the model looks the ids up; None where that is not seen."""
    graph = onnx.load(str(source), load_external_data=False).graph
    tables = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    rows = [
        tables[node.input[0]][0]
        for node in graph.node
        if node.op_type == "Gather"
        and node.input[1] == ids
        and tables.get(node.input[0])
        and next((a.i for a in node.attribute if a.name == "axis"), 0) == 0
    ]
    return min(rows) if rows else None


def _fingerprint(source: Path, onnx: Any) -> str:
    """A digest of the model and of every file that it keeps weights in; those must lie beside it."""
    try:
        graph = onnx.load(str(source), load_external_data=False).graph
    except Exception as error:
        raise ModelFileError(f"{source} is not a readable ONNX file: {_first_line(error)}") from error
    digest = blake2b(digest_size=16)
    beside = sorted(
        {
            entry.value
            for tensor in _tensors(graph)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )
    for location in beside:
        place, folder = (os.path.realpath(each) for each in (source.parent / location, source.parent))
        if not Path(place).is_relative_to(folder):
            raise ModelFileError(f"{source} keeps weights in {location!r}, outside its own folder; refused")
    for file in (source, *(source.parent / location for location in beside)):
        try:
            with file.open("rb") as content:
                while block := content.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise ModelFileError(
                f"{source} keeps weights in {file.name}, which cannot be read: {error.strerror}"
            ) from error
    return f"content:{digest.hexdigest()}"


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph, those in subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
