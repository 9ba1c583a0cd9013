"""What each setting of a completions endpoint leaves to an attacker, priced for the sizes that were found.

The attacks are those of docs/language-models.md, which measures every row; none is tried on the target here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from unsoftmax.families import Family
from unsoftmax.learners.claims import Size
from unsoftmax.learners.language_model.token_prompts import ColumnSpace, TokenPromptLearner
from unsoftmax.learners.language_model.unembedding import Unembedding
from unsoftmax.recovery.result import Result

__all__ = ["EndpointSetting", "settings_of"]

_FEW = 5  # log-probabilities an answer of many public servers


@dataclass(frozen=True)
class EndpointSetting:
    """requests: what the attack sends, prompts times requests a prompt; None where there is no attack
    here."""

    setting: str
    leaks: str
    requests: int | None


def settings_of(result: Result) -> list[dict[str, Any]]:
    """Rows for a report; none for targets that are no language models, or whose sizes are not known."""
    part = result.parts.get("unembedding")
    if result.family != Family.LANGUAGE_MODEL.value or part is None:
        return []
    value = part.value
    assert isinstance(value, Unembedding | ColumnSpace)
    tokens = len(value.matrix if isinstance(value, Unembedding) else value.basis)
    return [asdict(row) for row in _rows(value.width, tokens)]


def _rows(width: int, tokens: int) -> list[EndpointSetting]:
    ids = TokenPromptLearner.claim.queries.count(Size(width))
    space = "hidden width, kind of the final norm, column space of the unembedding"
    biased = ceil((tokens - 1) / (_FEW - 1))
    return [
        EndpointSetting(
            "prompts of vectors, all log-probabilities",
            "the unembedding itself at any depth; the whole of one layer for more queries",
            width,
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
            f"the {_FEW} largest, no logit bias", "nothing by this tool, which is no proof of safety", None
        ),
    ]
