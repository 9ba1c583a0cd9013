"""What may hide behind an oracle."""

from unsoftmax.models.asking_row import AskingRow
from unsoftmax.models.base import Model, softmax
from unsoftmax.models.conversions.encoder_blocks import (
    block_from_state,
    block_from_torch,
    block_to_torch,
    from_torch,
    to_torch,
)
from unsoftmax.models.encoder_block import EncoderBlock
from unsoftmax.models.equivalence import Equivalence, equivalent
from unsoftmax.models.files.storage import load, plain_model
from unsoftmax.models.language_model import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.canonical_distance import MeasuredNetwork
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.networks.network import Network
from unsoftmax.models.networks.network_signs import PlainNetwork, plain_network
from unsoftmax.models.networks.random_networks import random_relu_network, random_transformer
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.random import random_multi_head, random_single_head
from unsoftmax.models.residual_stack import ResidualStack, StackLayer, random_residual_stack
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.tokens.random_tokens import random_token_heads
from unsoftmax.models.tokens.token_head import TokenHead, TokenPositions
from unsoftmax.models.tokens.token_heads import TokenHeads
from unsoftmax.models.transformer import Transformer
from unsoftmax.models.witness import witness_pair

__all__ = [
    "AskingRow",
    "CanonicalNetwork",
    "Dense",
    "EncoderBlock",
    "Equivalence",
    "Factors",
    "GatedNetwork",
    "LanguageModel",
    "Matrix",
    "MeasuredNetwork",
    "Model",
    "MultiHead",
    "Network",
    "PlainNetwork",
    "ReluNetwork",
    "ResidualStack",
    "SingleHead",
    "StackLayer",
    "TokenHead",
    "TokenHeads",
    "TokenPositions",
    "Transformer",
    "block_from_state",
    "block_from_torch",
    "block_to_torch",
    "equivalent",
    "from_torch",
    "load",
    "plain_model",
    "plain_network",
    "random_gpt2",
    "random_language_model",
    "random_multi_head",
    "random_relu_network",
    "random_residual_stack",
    "random_single_head",
    "random_token_heads",
    "random_transformer",
    "softmax",
    "to_torch",
    "witness_pair",
]
