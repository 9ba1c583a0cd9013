"""What may hide behind an oracle."""

from unsoftmax.models.base import Model, softmax
from unsoftmax.models.equivalence import Equivalence, equivalent
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.random import random_multi_head, random_single_head
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.storage import load
from unsoftmax.models.torch_conversion import from_torch, to_torch
from unsoftmax.models.witness import witness_pair

__all__ = [
    "Dense",
    "Equivalence",
    "Factors",
    "Matrix",
    "Model",
    "MultiHead",
    "SingleHead",
    "equivalent",
    "from_torch",
    "load",
    "random_multi_head",
    "random_single_head",
    "softmax",
    "to_torch",
    "witness_pair",
]
