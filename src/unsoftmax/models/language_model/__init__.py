"""Decoder-only language models of the shapes of Llama and GPT-2."""

from unsoftmax.models.language_model.model import LanguageModel
from unsoftmax.models.language_model.parts import (
    Attention,
    DecoderLayer,
    FeedForward,
    GatedNetwork,
    LearnedPositions,
    Positions,
    Rotary,
)
from unsoftmax.models.language_model.random_models import random_gpt2, random_language_model

__all__ = [
    "Attention",
    "DecoderLayer",
    "FeedForward",
    "GatedNetwork",
    "LanguageModel",
    "LearnedPositions",
    "Positions",
    "Rotary",
    "random_gpt2",
    "random_language_model",
]
