"""What rows of zeros tell of a decoder behind an RMSNorm: biases, and a window of attention.

Without biases a row of zeros stays zero in every layer, and all tokens are as likely after it. Behind a row
that is not zero, attention of a zero row is even, so that the first row of a prompt shows however long it is.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import rms
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.outcomes import Unresolved

__all__ = ["check_biases", "check_window"]

_SEEN = 1e-3  # size of a state that is not zero: states have size one, and their rounding is 1e-6 in float32
_LONG = 32  # rows of the longest prompts that heads are found with


def check_biases(state: HiddenState) -> None:
    """Refuses biases, by name. One query."""
    left = rms(state(np.zeros((1, 1, state.prompts.width))))
    if left > _SEEN:
        raise Unresolved(
            f"a row of zeros leaves a state of size {left:.2g}, so that sublayers have biases (of values, as "
            "Qwen2 has them, or of networks), or the server puts tokens of its own before a prompt; behind "
            "an RMSNorm neither is learned"
        )


def check_window(state: HiddenState, rng: np.random.Generator, rows: int = _LONG) -> None:
    """Refuses attention that does not reach from the last of so many rows to the first. Two queries."""
    d = state.prompts.width
    longest = min(rows, state.prompts.max_length or rows)
    row = unit_rows(rng, 1, d)[0]

    def seen(length: int) -> bool:
        prompt = np.zeros((1, length, d))
        prompt[0, 0] = row
        return rms(state(prompt)) > _SEEN

    if longest > 2 and seen(2) and not seen(longest):
        hidden = next(length for length in range(3, longest + 1) if not seen(length))
        raise Unresolved(
            f"a row that {hidden - 1} rows follow is not seen by the last one: attention has a window, and "
            "heads that look back through one are not learned"
        )
