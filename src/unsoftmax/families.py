"""The families of functions that a target may belong to."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EVERY_FAMILY", "Family"]


class Family(StrEnum):
    """A family by its public name.

    >>> Family("multi-head") is Family.MULTI_HEAD, str(Family.SINGLE_HEAD)
    (True, 'single-head')
    """

    SINGLE_HEAD = "single-head"
    MULTI_HEAD = "multi-head"
    TRANSFORMER = "transformer"
    RELU_NETWORK = "relu-network"
    NETWORK = "network"
    ENCODER_BLOCK = "encoder-block"
    LANGUAGE_MODEL = "language-model"
    TOKENS = "tokens"


EVERY_FAMILY = frozenset(Family)
