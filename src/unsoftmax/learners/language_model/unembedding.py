"""The unembedding of a pre-norm decoder of any depth, absolutely, from d queries with vectors as prompts.

One row T·e_i with a huge T is a prompt by itself. Every sublayer sees a normed row, so it adds O(1) to a
residual stream of size
T, and the final norm sees e_i up to O(1/T). The centred log-probabilities are then column i of the
unembedding times √d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.families import Family
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.meters.language_model.prompts import Prompts, centred_logits, unit_rows
from unsoftmax.models.parts import LayerNorm, Norm, RMSNorm
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Test

__all__ = ["PRE_NORM_TEST", "Unembedding", "UnembeddingLearner"]

ANSWER_TEST = Test("one log-probability for every token", frozenset({Family.LANGUAGE_MODEL}))
PRE_NORM_TEST = Test("logits are linear in the direction of a large row", frozenset({Family.LANGUAGE_MODEL}))

# T: its square stays inside float32 (3e38), 1/T is far below the rounding of float64, and a power of two
# leaves rows in float32 as they are
_HUGE = 2.0**60
_VERIFICATION = 16
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
    vocabulary; nothing is left
    open, and the depth does not matter. Fails when: the model normalises its input, or norms after every
    sublayer (OUTSIDE_CLASS).
    """

    verification: int = _VERIFICATION

    family: ClassVar[Family] = Family.LANGUAGE_MODEL
    claim: ClassVar[Claim] = Claim(
        title="the unembedding of a pre-norm decoder of any depth",
        source="this project; docs/language-models.md",
        assumptions=(
            Assumption("rows of any size may be sent", "a bound below the size in use ends the run"),
            Assumption(
                "sublayers see normed rows and add to a residual stream", "fresh directions are predicted"
            ),
        ),
        queries=QueryCount("d", "exact", lambda size: size.width),
        recovers="the unembedding with the final gain, and the kind of the final norm",
        symmetry="a constant a column, which no log-probability shows",
        departs="arXiv 2403.06634: d queries instead of d(d+1)/2, and no orthogonal matrix is left open",
    )

    def learn_part(self, prompts: Prompts, rng: np.random.Generator) -> RecoveredPart[Unembedding]:
        """The part and its certificate."""
        d = prompts.width
        if prompts.outputs is None or prompts.outputs < 2:
            raise OutsideClass(ANSWER_TEST, "an answer is a single number")
        with prompts.phase("unembedding"):
            columns = centred_logits(prompts.ask(_HUGE * np.eye(d)[:, None, :]))
        fresh = unit_rows(rng, self.verification, d).astype(np.float32).astype(np.float64)
        huge = _HUGE / 2.0 ** np.ceil(np.log2(d) / 2.0)  # the squares of all entries add up to no more
        with prompts.phase("verification"):
            answers = centred_logits(prompts.ask(huge * fresh[:, None, :]))
        candidates = [_with_rms_norm(columns), _with_layer_norm(columns)]
        misfits = [np.abs(found.logits(huge * fresh) - answers).max() for found in candidates]
        best = int(np.argmin(misfits))
        certificate = PartCertificate(float(misfits[best]), self.verification, float(np.abs(answers).max()))
        _check(certificate)
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
            "pre-norm, and is its input used as it is?",
        )


def _with_rms_norm(columns: Array) -> Unembedding:
    """Row i of `columns` are the logits of e_i, whose norm is √d·e_i."""
    d = len(columns)
    return Unembedding(np.asarray(columns.T / np.sqrt(d)), RMSNorm(np.ones(d), None, 0.0))


def _with_layer_norm(columns: Array) -> Unembedding:
    """LayerNorm makes (e_i - 1/d)·d/√(d-1) of e_i; these add up to zero, so the mean of all answers is the
    bias of the logits."""
    d = len(columns)
    if d < 2:
        return _with_rms_norm(columns)
    bias = columns.mean(axis=0)
    seen = (columns - bias).T * np.sqrt(d - 1.0) / d
    seen = seen - seen.mean(axis=1, keepdims=True)
    return Unembedding(np.asarray(seen + bias[:, None] / d), LayerNorm(np.ones(d), np.ones(d), 0.0))
