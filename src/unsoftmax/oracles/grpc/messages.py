"""The messages of the Open Inference Protocol (package inference, version 2), written as a table of fields.

Source: grpc_service.proto of KServe's open-inference-protocol. Fields that are not used here (ids,
parameters) are left out; on the wire they are skipped.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

__all__ = ["INFER", "METADATA", "message"]

_SERVICE = "/inference.GRPCInferenceService"
METADATA = f"{_SERVICE}/ModelMetadata"
INFER = f"{_SERVICE}/ModelInfer"

# message: fields as in the .proto file, 'repeated' as a star
_MESSAGES = {
    "ModelMetadataRequest": "string name = 1; string version = 2",
    "TensorMetadata": "string name = 1; string datatype = 2; int64* shape = 3",
    "ModelMetadataResponse": "string name = 1; string* versions = 2; string platform = 3; "
    "TensorMetadata* inputs = 4; TensorMetadata* outputs = 5",
    "InferTensorContents": "bool* bool_contents = 1; int32* int_contents = 2; int64* int64_contents = 3; "
    "uint32* uint_contents = 4; uint64* uint64_contents = 5; float* fp32_contents = 6; "
    "double* fp64_contents = 7; bytes* bytes_contents = 8",
    "InferTensor": "string name = 1; string datatype = 2; int64* shape = 3; InferTensorContents contents = 5",
    "InferRequestedOutputTensor": "string name = 1",
    "ModelInferRequest": "string model_name = 1; string model_version = 2; InferTensor* inputs = 5; "
    "InferRequestedOutputTensor* outputs = 6; bytes* raw_input_contents = 7",
    "ModelInferResponse": "string model_name = 1; string model_version = 2; InferTensor* outputs = 5; "
    "bytes* raw_output_contents = 6",
}
_FIELD = re.compile(r"(?P<type>\w+)(?P<star>\*?) (?P<name>\w+) = (?P<number>\d+)")


@cache
def message(name: str) -> Any:
    """The class of a message.

    >>> message("ModelInferRequest")(model_name="m").SerializeToString()
    b'\\n\\x01m'
    """
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"inference.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for match in _FIELD.finditer(fields):
            field = described.field.add(name=match["name"], number=int(match["number"]))
            field.label = (
                FieldDescriptorProto.LABEL_REPEATED if match["star"] else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if match["type"] in _MESSAGES:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".inference.{match['type']}"
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{match['type'].upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return pool
