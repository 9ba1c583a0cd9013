"""What a model of an Open Inference Protocol server says of itself, checked before anything relies on it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.base import LARGEST_WIDTH
from unsoftmax.oracles.http.json_text import read_json, write_json

__all__ = ["Described", "Description", "read_object"]

_LONGEST_NAME = 1000  # characters; a name goes back to the server with every request


@dataclass(frozen=True)
class Description:
    """Name, datatype and width of the input, name and width of the output, whether the model takes one
    sequence at a time, and a digest of all that the server told.
    """

    input_name: str
    datatype: str
    width: int | None
    output_name: str | None
    outputs: int | None
    one_at_a_time: bool
    digest: str

    @property
    def takes_ids(self) -> bool:
        """Whether a sequence is token ids rather than rows."""
        return self.datatype in ("INT64", "INT32")

    @property
    def arithmetic(self) -> FloatFormat | None:
        """The format of the input, in which a model computes as well; None for float64."""
        return FloatFormat.FLOAT32 if self.datatype == "FP32" else None

    @classmethod
    def read(cls, body: bytes, wanted: str | None, who: str) -> Description:
        """The description in a reply. wanted: the output that the user chose. who: the address."""
        return cls.of(read_object(body, who), wanted, who)

    @classmethod
    def of(cls, told: dict[str, Any], wanted: str | None, who: str) -> Description:
        """The description in the words of the protocol: name, versions, platform, inputs, outputs."""
        try:
            name, datatype, width, one_at_a_time = _input(told, who)
            output, outputs = _output(told, wanted, who)
            facts = {part: told.get(part) for part in ("name", "versions", "platform", "inputs", "outputs")}
            digest = blake2b(write_json(facts), digest_size=8).hexdigest()
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise OracleFault(f"the model at {who} has a description that cannot be read: {error}") from error
        return cls(name, datatype, width, output, outputs, one_at_a_time, digest)


def read_object(body: bytes, who: str) -> dict[str, Any]:
    """The JSON object in a reply; anything else is a fault."""
    try:
        content = read_json(body)
    except ValueError as error:
        raise OracleFault(
            f"{who} did not answer with JSON; is this the address of a model server?"
        ) from error
    if not isinstance(content, dict):
        raise OracleFault(f"{who} answered with a JSON {type(content).__name__} instead of an object")
    return content


def _input(told: dict[str, Any], who: str) -> tuple[str, str, int | None, bool]:
    inputs = _tensors(told, "inputs", who)
    if not inputs:
        return "input-0", "FP64", None, False  # the description is optional; then the user tells the width
    if len(inputs) > 1:
        raise UsageError(f"the model at {who} has {len(inputs)} inputs; only models with one are supported")
    name, shape = _name(inputs[0], "input-0", who), _shape(inputs[0], [-1, -1, -1], who)
    datatype = inputs[0].get("datatype", "FP64")
    if datatype in ("INT64", "INT32"):
        shape = _shape(inputs[0], [-1, -1], who)
        if len(shape) != 2 or shape[1] > 0 or shape[0] > 1:
            raise UsageError(
                f"the input {name!r} of the model at {who} has shape {shape}; token ids must be [-1, -1]"
            )
        return name, datatype, None, shape[0] == 1
    if datatype not in ("FP64", "FP32"):
        raise UsageError(
            f"the input {name!r} of the model at {who} has datatype {datatype!r}; only FP64 and FP32 for "
            "rows, INT64 and INT32 for token ids are supported"
        )
    if len(shape) != 3 or shape[1] > 0 or shape[0] > 1:
        raise UsageError(
            f"the input {name!r} of the model at {who} has shape {shape}; it must be [-1, -1, width], with "
            "any number of rows"
        )
    return name, datatype, shape[2] if shape[2] > 0 else None, shape[0] == 1


def _output(told: dict[str, Any], wanted: str | None, who: str) -> tuple[str | None, int | None]:
    outputs = {_name(output, "output-0", who): output for output in _tensors(told, "outputs", who)}
    if wanted is None and len(outputs) > 1:
        names = ", ".join(map(repr, outputs))
        raise UsageError(f"the model at {who} has the outputs {names}; choose one with the option output")
    if wanted is not None and outputs and wanted not in outputs:
        raise UsageError(f"the model at {who} has no output {wanted!r}, only {', '.join(map(repr, outputs))}")
    if not outputs:
        return wanted, None
    name = wanted if wanted is not None else next(iter(outputs))
    shape = _shape(outputs[name], [-1], who)
    return name, shape[1] if len(shape) == 2 and shape[1] > 1 else None


def _tensors(told: dict[str, Any], part: str, who: str) -> list[dict[str, Any]]:
    tensors = told.get(part) or []
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise OracleFault(f"the model at {who} has a description whose {part} are not a list of tensors")
    return tensors


def _name(tensor: dict[str, Any], usual: str, who: str) -> str:
    name = tensor.get("name", usual)
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        raise OracleFault(f"the model at {who} names a tensor {name!r}, which is not a name")
    return name


def _shape(tensor: dict[str, Any], usual: list[int], who: str) -> list[int]:
    """The shape of a tensor; no size may be so large that a batch of it could not be held in memory."""
    shape = tensor.get("shape") or usual
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise OracleFault(
            f"the model at {who} describes a tensor of shape {shape!r}; a shape is whole numbers"
        )
    if any(size > LARGEST_WIDTH for size in shape):
        raise OracleFault(
            f"the model at {who} describes a tensor of shape {shape}; sizes up to {LARGEST_WIDTH:,} are "
            "supported"
        )
    return shape


class Described:
    """Width and outputs of a target whose server has `told` them."""

    told: Description

    @property
    def width(self) -> int | None:
        return self.told.width

    @property
    def outputs(self) -> int | None:
        return self.told.outputs

    @property
    def arithmetic(self) -> FloatFormat | None:
        return self.told.arithmetic
