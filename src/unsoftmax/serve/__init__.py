"""A model as an Open Inference Protocol server on loopback: for practice, tests and demos."""

from unsoftmax.serve.defences import defended
from unsoftmax.serve.faults import Faults
from unsoftmax.serve.limits import Limits
from unsoftmax.serve.server import ModelServer

__all__ = ["Faults", "Limits", "ModelServer", "defended"]
