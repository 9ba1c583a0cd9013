"""What these meters ask through, and how log-probabilities become logits without their mean."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.outcomes import Unresolved

__all__ = ["Prompts", "centred_logits", "check_prompts_count", "in_float32", "unit_rows"]

_ALIKE = 1e-9  # of the logits: answers to different prompts that differ by less do not depend on the prompt


class Prompts(Protocol):
    """The part of an asker that is used here: prompts (B, N, d) in, log-probabilities (B, V) out."""

    @property
    def width(self) -> int:
        """Columns of a row."""

    @property
    def outputs(self) -> int | None:
        """Tokens of the vocabulary."""

    @property
    def max_length(self) -> int | None:
        """Rows of the longest prompt, where it is known."""

    def ask(self, batch: Array) -> Array:
        """Log-probabilities of the next token."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""


def centred_logits(answers: Array) -> Array:
    """Logits without their mean, which is all that log-probabilities, or logits with any offset, tell.

    >>> centred_logits(np.log([[0.5, 0.25, 0.25]])).sum().round(12) == 0.0
    np.True_
    """
    return np.asarray(answers - answers.mean(axis=-1, keepdims=True))


def check_prompts_count(logits: Array) -> None:
    """Refuses answers that are the same whatever is asked."""
    if np.ptp(logits, axis=0).max() <= _ALIKE * np.abs(logits).max():
        raise Unresolved("every prompt gets the same log-probabilities; does the target read its prompts?")


def unit_rows(rng: np.random.Generator, count: int, width: int) -> Array:
    """Random directions with mean square one, (count, width)."""
    rows = rng.standard_normal((count, width))
    return np.asarray(rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True)))


def in_float32(rows: Array) -> Array:
    """The nearest rows that float32 holds: targets that take rows in float32 see them as they are.

    >>> in_float32(np.array([0.1])) == 0.1
    array([False])
    """
    return np.asarray(rows.astype(np.float32), dtype=np.float64)
