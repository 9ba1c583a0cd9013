"""What may hide behind an oracle."""

from unsoftmax.models.base import Model, softmax
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.models.random import random_single_head
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.storage import load

__all__ = ["Dense", "Factors", "Matrix", "Model", "SingleHead", "load", "random_single_head", "softmax"]
