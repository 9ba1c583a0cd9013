"""What learners of token ids return."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.answers import Answers, Computed, Exact
from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.tokens.claims import TOKEN_HEAD_CLAIM
from unsoftmax.models import TokenHead, TokenHeads

__all__ = ["STRONG", "LearnedTokens", "constant_answers", "readout_of"]

STRONG = 2.5  # deviation of scores from which rare sequences are known much worse than usual ones
_EXPLAINED = 1e4  # predicted losses: more means another function
_NOISE_EXPLAINED = 30.0  # noise is four standard deviations; where scores are strong, tails are heavy


@dataclass(frozen=True, eq=False)
class LearnedTokens:
    """The model, the noise of the answers, and by how much the table's own errors move answers at most.

    strong: whether some scores are so strong that predictions of these errors are poor. claim: of the learner
    that made the model. parameter_error: how far parameters are off, relative, where a joint fit tells it.
    score_error: the same for the scores alone, as the fits of single columns predict it; unseen: the number
    of asking tokens whose scores show too faintly for that, which are left out.
    answers: what kind of answers the target gives, with the evidence in `seen`. fitted: whether all of it was
    fitted to more answers than unknowns, so that what is left is their noise.
    """

    model: TokenHeads
    noise: float
    loss: float
    strong: bool = False
    claim: Claim = TOKEN_HEAD_CLAIM
    parameter_error: float = 0.0
    score_error: float = 0.0
    unseen: int = 0
    answers: Answers = field(default_factory=Exact)
    seen: str = ""
    fitted: bool = False

    @property
    def explained(self) -> float:
        """How far answers may be from the model's by the errors of the method alone."""
        if not self.fitted:
            return _EXPLAINED * max(self.loss, self.noise)
        # scores are rounded too, which equal sequences do not show: they share them
        unit = self.answers.format.unit if isinstance(self.answers, Computed) else 0.0
        rounding = unit * self.model.score_strength() * self.model.spread
        # where answers round, residuals tell the loss: those of another function must not excuse it
        loss = self.loss if isinstance(self.answers, Exact) else 0.0
        return _NOISE_EXPLAINED * (self.noise + loss + rounding)


def readout_of(values: Array) -> Array | None:
    """For vector answers the direction along which values of tokens differ most, (m,)."""
    if values.ndim == 1:
        return None
    return np.asarray(np.linalg.svd(values - values.mean(axis=0), full_matrices=False)[2][0])


def constant_answers(values: Array) -> LearnedTokens:
    """All scores zero: no answer shows them."""
    nothing = np.zeros((len(values), 0))
    return LearnedTokens(TokenHeads([TokenHead(nothing, nothing, values)]), 0.0, 0.0)
