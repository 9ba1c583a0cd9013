"""What was found out about a language model on the way, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unsoftmax.answers import Finding
from unsoftmax.learners.language_model.parts import RecoveredPart
from unsoftmax.learners.language_model.token_prompts import ColumnSpace
from unsoftmax.learners.language_model.unembedding import Unembedding

__all__ = ["findings_of"]

# misfit of the logits, relative
_FORMATS = ((1e-12, "float64"), (1e-5, "float32"), (1e-1, "bfloat16 or float16"))


def findings_of(look: Any, parts: Mapping[str, RecoveredPart[Any]]) -> tuple[Finding, ...]:
    """look: what a server said it offers (`CompletionsLook`), or None. parts: what was recovered."""
    found = [Finding("family", "language-model", "answers are log-probabilities of the next token", 0)]
    if look is not None:
        showed = f"{look.requests} requests showed that, beside the bill."
        found.append(Finding("endpoint", "completions", " ".join([*look.sentences, showed]), 0))
    part = parts.get("unembedding")
    if part is None:
        return tuple(found)
    relative = part.certificate.relative
    short = next((name for limit, name in _FORMATS if relative <= limit), "rough")
    queries = part.certificate.n_queries
    found.append(
        Finding("answers", short, f"fresh logits are predicted to {relative:.1g} of the largest", queries)
    )
    if isinstance(part.value, Unembedding):
        kind = type(part.value.norm).__name__
        misfit = f"the other kind of norm is {part.facts['other_norm_misfit']:.2g} off"
        found.append(Finding("final norm", kind, misfit, 0))  # the same answers
    if isinstance(part.value, ColumnSpace):
        gap = f"singular values fall by {part.facts['gap']:.2g} after the last"
        found.append(Finding("hidden width", str(part.value.width), gap, queries))
        found.append(
            Finding(
                "final norm", "LayerNorm" if part.value.layer_norm else "RMSNorm", "rank of differences", 0
            )
        )
    return tuple(found)
