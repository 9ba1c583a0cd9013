"""Hidden width, kind of the final norm and the column space of the unembedding, from token prompts alone.

The published setting (arXiv 2403.06634): centred logits of any prompts lie in a space of d dimensions, so d +
a few random prompts show d as a rank, and their span is that of the unembedding. With LayerNorm they lie in a
plane beside the origin: their rank is one more than that of their differences.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.meters.language_model.prompts import centred_logits, check_prompts_count
from unsoftmax.oracles import Ids
from unsoftmax.outcomes import Unresolved

__all__ = ["ColumnSpace", "TokenPromptLearner", "TokenPrompts"]

_LENGTH = 8  # tokens of a prompt
_FIRST, _GROWTH = 64, 1.25  # prompts: at most a quarter of them is more than the rank asks for
_SPARE = 16  # prompts beyond the rank
# ratio of neighbouring singular values that marks the rank; without a rank neighbours differ by less than 2
_GAP = 30.0
_VERIFICATION = 16  # prompts; each answer holds one number a token, so that few say much
_SAFETY = 4.0  # a factor on a bound of first order


class TokenPrompts(Protocol):
    """The part of an asker that is used here: token ids (B, N) in, log-probabilities (B, V) out."""

    @property
    def outputs(self) -> int | None:
        """Tokens of the vocabulary."""

    def ask(self, batch: Array) -> Array:
        """Log-probabilities of the next token."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """basis: orthonormal columns (V, rank) that span the centred logits. width: hidden width. layer_norm:
    whether the final norm is a LayerNorm with a bias; without a bias it looks like an RMSNorm of one
    dimension less."""

    basis: Array
    width: int
    layer_norm: bool


@dataclass(frozen=True)
class TokenPromptLearner:
    """The column space of the unembedding.

    Claim: at most 1.25·(d + 16) + 64 queries, plus verification. Assumes: more tokens than hidden dimensions
    (checked: the rank is below both). Recovers: the hidden width, and the unembedding up to an invertible
    matrix of d×d. Fails when: hidden states of random prompts do not fill all dimensions clearly (no gap:
    UNRESOLVED), or answers do not repeat or do not depend on the prompt (UNRESOLVED).
    """

    family: ClassVar[Family] = Family.LANGUAGE_MODEL
    claim: ClassVar[Claim] = Claim(
        title="hidden width and column space of the unembedding, from token prompts",
        source="arXiv 2403.06634",
        assumptions=(
            Assumption("more tokens than hidden dimensions", "the rank stays below the number of tokens"),
        ),
        queries=QueryCount("1.25 (d + 16) + 64", "upper", lambda size: int(1.25 * (size.width + 16)) + 64),
        recovers="hidden width, kind of the final norm, unembedding up to an invertible matrix",
        symmetry="an invertible matrix of hidden coordinates; a constant a column",
    )

    def learn_part(self, prompts: TokenPrompts, rng: np.random.Generator) -> RecoveredPart[ColumnSpace]:
        """The part and its certificate."""
        vocabulary = prompts.outputs or 0
        logits, wanted = np.empty((0, vocabulary)), _FIRST
        with prompts.phase("unembedding"):
            while True:
                logits = np.vstack([logits, self._ask(prompts, rng, wanted - len(logits))])
                found = _rank(logits)
                if found is not None and len(logits) >= found[0] + _SPARE:
                    break
                if len(logits) > _GROWTH * (vocabulary + _SPARE) + _FIRST:
                    raise Unresolved(
                        f"logits of {len(logits)} prompts show no rank below the {vocabulary} tokens; is the "
                        "hidden width larger?"
                    )
                wanted = int(np.ceil(_GROWTH * len(logits)))
        rank, gap = found
        check_prompts_count(logits)
        basis = np.linalg.svd(logits, full_matrices=False)[2][:rank].T
        with prompts.phase("verification"):
            fresh = self._ask(prompts, rng, _VERIFICATION)
        off = np.abs(fresh - (fresh @ basis) @ basis.T).max()
        certificate = PartCertificate(float(off), _VERIFICATION, float(np.abs(fresh).max()))
        error = _SAFETY * max(1.0 / gap, certificate.relative)
        if error >= 1.0:
            raise Unresolved(
                f"logits of {len(logits)} prompts span {rank} dimensions, and fresh prompts are answered "
                "outside of them; does the target give the same answer when asked again?"
            )
        affine = _rank(logits - logits.mean(axis=0))
        layer_norm = affine is not None and affine[0] == rank - 1
        return RecoveredPart(
            "unembedding",
            ColumnSpace(basis, rank, layer_norm),
            error,
            "an invertible matrix of hidden coordinates, and a constant for each, added to all tokens",
            certificate,
            {"gap": gap},
        )

    @staticmethod
    def _ask(prompts: TokenPrompts, rng: np.random.Generator, count: int) -> Array:
        ids: Ids = rng.integers(0, prompts.outputs or 1, (count, _LENGTH))
        return centred_logits(prompts.ask(ids))  # type: ignore[arg-type]


def _rank(logits: Array) -> tuple[int, float] | None:
    """The rank and how clear it is, or None."""
    # the mean of the logits is not a direction, so there are one fewer than tokens; what is left of it is no
    # rounding of the answers, which may be much larger, and must not count as a gap
    values = np.linalg.svd(logits, compute_uv=False)[: logits.shape[1] - 1]
    floor = np.maximum(values[1:], 1e-15 * values[0])
    ratios = values[:-1] / floor
    rank = int(ratios.argmax()) + 1 if len(ratios) else 0
    if not rank or ratios[rank - 1] < _GAP:
        return None
    return rank, float(ratios[rank - 1])
