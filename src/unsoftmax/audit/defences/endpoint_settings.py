"""What each setting of a completions endpoint leaves to an attacker, priced for the sizes that were found.

The attacks are those of docs/language-models.md, which measures every row; none is tried on the target here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from unsoftmax.families import Family
from unsoftmax.learners.claims import Size
from unsoftmax.learners.language_model.token_prompts import ColumnSpace, TokenPromptLearner
from unsoftmax.learners.language_model.unembedding import Unembedding
from unsoftmax.recovery.result import Result

__all__ = ["EndpointSetting", "settings_of"]

_NOTHING = "nothing by this tool, which is not proof of safety"
# what blurs answers, and the deviation of a log-probability that it makes
_BLURS = (("rounded to 2 decimals", 0.01 / 12**0.5), ("with random noise of 0.01", 0.01))
_FEW = 5  # log-probabilities an answer of many public servers


@dataclass(frozen=True)
class EndpointSetting:
    """requests: what the attack sends, prompts times requests a prompt; None where there is no attack
    here."""

    setting: str
    leaks: str
    requests: int | None


def settings_of(result: Result) -> list[dict[str, Any]]:
    """Rows for a report; none for targets that are not language models, or whose sizes are not known."""
    part = result.parts.get("unembedding")
    if result.family != Family.LANGUAGE_MODEL.value or part is None:
        return []
    value = part.value
    assert isinstance(value, Unembedding | ColumnSpace)
    tokens = len(value.matrix if isinstance(value, Unembedding) else value.basis)
    largest = float(np.abs(value.matrix).max()) if isinstance(value, Unembedding) else None
    return [asdict(row) for row in _rows(value.width, tokens, largest)]


def _rows(width: int, tokens: int, largest: float | None) -> list[EndpointSetting]:
    ids = TokenPromptLearner.claim.queries.count(Size(width))
    space = "hidden width, kind of the final norm, column space of the unembedding"
    biased = ceil((tokens - 1) / (_FEW - 1))
    return [
        EndpointSetting(
            "prompts of vectors, all log-probabilities",
            "the unembedding itself at any depth; the whole of one layer for more queries",
            width,
        ),
        *(
            EndpointSetting(f"the same, {how}", f"the unembedding, {_known_to(error, width, largest)}", width)
            for how, error in _BLURS
        ),
        EndpointSetting("prompts of token ids only, all log-probabilities", space, ids),
        EndpointSetting(
            f"token ids only, the {_FEW} largest, a logit bias shown in them", space, ids * biased
        ),
        EndpointSetting(
            f"token ids only, the {_FEW} largest, a logit bias that moves only the chosen token",
            space,
            ids * tokens,
        ),
        EndpointSetting(
            f"token ids only, the {_FEW} largest, a logit bias of a few units at most", _NOTHING, None
        ),
        EndpointSetting(f"the {_FEW} largest, no logit bias", _NOTHING, None),
    ]


def _known_to(error: float, width: int, largest: float | None) -> str:
    """d orthogonal rows of length √d average errors of answers down by √d; the largest of all entries is
    about four deviations off."""
    if largest is None:
        return "to what is left of the digits; asking again averages noise, not rounding"
    return f"to about {4.0 * error / (width**0.5 * largest):.1g} of its largest entry"
