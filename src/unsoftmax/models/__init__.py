"""What may hide behind an oracle."""

from unsoftmax.models.base import Model, softmax
from unsoftmax.models.folds import Folds
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.models.network_signs import PlainNetwork, plain_network
from unsoftmax.models.random import random_single_head
from unsoftmax.models.random_networks import random_relu_network, random_transformer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.storage import load
from unsoftmax.models.transformer import Transformer

__all__ = [
    "Dense",
    "Factors",
    "Folds",
    "Matrix",
    "Model",
    "PlainNetwork",
    "ReluNetwork",
    "SingleHead",
    "Transformer",
    "load",
    "plain_network",
    "random_relu_network",
    "random_single_head",
    "random_transformer",
    "softmax",
]
