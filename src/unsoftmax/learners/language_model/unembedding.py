"""The unembedding of a pre-norm decoder of any depth, absolutely, from d queries with vectors as prompts.

One row T·x with a huge T is a prompt by itself. Every sublayer sees a normed row, so it adds O(1) to a
residual stream of size T, and the final norm sees x up to O(1/T). The centred log-probabilities are then the
unembedding times the normed x, and d rows x fix it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array, complement
from unsoftmax.families import Family
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.meters.language_model.prompts import (
    Prompts,
    centred_logits,
    check_prompts_count,
    in_float32,
    unit_rows,
)
from unsoftmax.models.parts import LayerNorm, Norm, RMSNorm
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Test

__all__ = ["PRE_NORM_TEST", "Unembedding", "UnembeddingLearner"]

ANSWER_TEST = Test("one log-probability for every token", frozenset({Family.LANGUAGE_MODEL}))
PRE_NORM_TEST = Test("logits are linear in the direction of a large row", frozenset({Family.LANGUAGE_MODEL}))

# T: its square stays inside float32 (3e38), 1/T is far below the rounding of float64, and a power of two
# leaves rows in float32 as they are
_HUGE = 2.0**60
_VERIFICATION = 16  # prompts; each answer holds one number a token, so that few say much
# of the size of the logits: bfloat16 answers are 1 % off, a model that is not pre-norm is as far off as its
# logits are large
_MISFIT = 0.05
# an entry of the matrix may be as wrong as four times the largest misfit of a logit on 16 fresh prompts
_SAFETY = 4.0


@dataclass(frozen=True, eq=False)
class Unembedding:
    """Logits are matrix·norm(row), up to a constant a prompt.

    norm: `RMSNorm` or `LayerNorm` with gain one; with LayerNorm its bias is one, and the mean of a matrix row
    is the bias of a logit.
    """

    matrix: Array
    norm: Norm

    @property
    def width(self) -> int:
        """Hidden width d."""
        return int(self.matrix.shape[1])

    def logits(self, rows: Array) -> Array:
        """Centred logits of a residual stream (B, d)."""
        return np.asarray(self.norm(rows) @ self.matrix.T)


@dataclass(frozen=True)
class UnembeddingLearner:
    """The unembedding and the kind of the final norm.

    Claim: d queries, plus verification. Queries: exactly d. Assumes: rows of any size may be sent (checked by
    the asker's bound);
    a pre-norm residual stream (checked on fresh directions). Recovers: U·diag(gain), centred over the
    vocabulary; nothing is left open, and the depth does not matter. Fails when: the model normalises its
    input, or norms after every sublayer (OUTSIDE_CLASS).
    """

    verification: int = _VERIFICATION

    family: ClassVar[Family] = Family.LANGUAGE_MODEL
    claim: ClassVar[Claim] = Claim(
        title="the unembedding of a pre-norm decoder of any depth",
        source="this library; docs/language-models.md",
        assumptions=(
            Assumption("rows of any size may be sent", "a bound below the size in use ends the run"),
            Assumption(
                "sublayers see normed rows and add to a residual stream", "fresh directions are predicted"
            ),
        ),
        queries=QueryCount("d", "exact", lambda size: size.width),
        recovers="the unembedding with the final gain, and the kind of the final norm",
        symmetry="a constant a column, which no log-probability shows",
    )

    def learn_part(self, prompts: Prompts, rng: np.random.Generator) -> RecoveredPart[Unembedding]:
        """The part and its certificate."""
        d = prompts.width
        if prompts.outputs is None or prompts.outputs < 2:
            raise OutsideClass(ANSWER_TEST, "an answer is a single number")
        huge = _HUGE / 2.0 ** np.ceil(np.log2(d) / 2.0)  # the squares of all entries add up to no more
        rows = _even_rows(rng, d)
        with prompts.phase("unembedding"):
            columns = centred_logits(prompts.ask(huge * rows[:, None, :]))
        fresh = in_float32(unit_rows(rng, self.verification, d))
        with prompts.phase("verification"):
            answers = centred_logits(prompts.ask(huge * fresh[:, None, :]))
        norms: list[Norm] = [RMSNorm(np.ones(d), None, 0.0), LayerNorm(np.ones(d), np.ones(d), 0.0)]
        candidates = [Unembedding(_solved(norm, rows, columns), norm) for norm in norms]
        misfits = [np.abs(found.logits(huge * fresh) - answers).max() for found in candidates]
        best = int(np.argmin(misfits))
        certificate = PartCertificate(float(misfits[best]), self.verification, float(np.abs(answers).max()))
        _check(certificate)
        check_prompts_count(answers)
        largest = float(np.abs(candidates[best].matrix).max())
        bound = _SAFETY * max(certificate.max_error, EPS * certificate.scale) / largest
        return RecoveredPart(
            "unembedding",
            candidates[best],
            bound,
            "a constant for every hidden coordinate, added to all tokens, which no log-probability shows",
            certificate,
            {"other_norm_misfit": float(misfits[1 - best])},
        )


def _check(certificate: PartCertificate) -> None:
    if certificate.scale == 0.0:
        raise NotIdentifiable(
            "all tokens have the same probability, whatever is asked: the unembedding is zero"
        )
    if certificate.relative > _MISFIT:
        raise OutsideClass(
            PRE_NORM_TEST,
            f"fresh directions are {certificate.relative:.2g} of the largest logit off; is the model "
            "pre-norm, is its input used as it is, and are its logits neither capped nor bent?",
        )


def _solved(norm: Norm, rows: Array, columns: Array) -> Array:
    """The matrix whose logits of the rows are `columns`. The bias of LayerNorm is solved for at size 1/√d,
    where it counts as much as any direction, and a second solve removes the rounding of the first."""
    share = 1.0 if norm.bias is None else 1.0 / np.sqrt(norm.width)
    normed = norm(rows) if norm.bias is None else norm(rows) - norm.bias + share
    inverse = np.linalg.pinv(normed)
    found = inverse @ columns
    found = found + inverse @ (columns - normed @ found)
    mean = found.mean(axis=0)
    return np.asarray(found - mean + share * mean).T if norm.bias is not None else np.asarray(found.T)


def _even_rows(rng: np.random.Generator, d: int) -> Array:
    """d orthogonal rows of mean square one that float32 holds, with entries of one size and one mean: short
    arithmetic rounds them less than rows of one entry, and LayerNorm tells all of them apart."""
    mean = np.full((d, 1), 1.0 / np.sqrt(d))
    if d == 1:
        return mean
    across = complement(mean)
    turned = across @ np.linalg.qr(rng.standard_normal((d - 1, d - 1)))[0] @ across.T
    return in_float32(np.sqrt(d) * (mean @ mean.T + turned))
