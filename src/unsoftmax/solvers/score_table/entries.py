"""Entries of several columns of a score table, and whether they agree with each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import Comparison, Mask

__all__ = ["Entries"]

_SOFT = 5.0  # error bar of a score of which only the side is known
_CONTRADICTION = 1e4  # error bars: more than the errors of keys explain
_NONE = -1  # the token of an entry that was left out


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of n columns, m each: value = (k_token − k_reference)·q, with its error bar.

    carried: entries that rest on the predicted score of a third token.
    """

    tokens: Ids
    references: Ids
    values: Array
    errors: Array
    carried: Mask

    @classmethod
    def plain(cls, tokens: Ids, references: Ids, values: Array, errors: Array) -> Entries:
        """Entries that rest on no other score."""
        return cls(tokens, references, values, errors, np.zeros(tokens.shape, dtype=bool))

    @property
    def soft_errors(self) -> Array:
        """Error bars, those of scores that cannot be read included."""
        return np.where(np.isfinite(self.errors) | (self.tokens == _NONE), self.errors, _SOFT)

    def part(self, chosen: Mask) -> Entries:
        """Some of the columns."""
        return Entries(
            self.tokens[chosen],
            self.references[chosen],
            self.values[chosen],
            self.errors[chosen],
            self.carried[chosen],
        )

    def holds(self, tokens: Ids) -> Mask:
        """Which of `tokens`, (p,) or (n, p), each column has an entry of, (n, p)."""
        return np.asarray((self.tokens[:, None, :] == np.atleast_2d(tokens)[:, :, None]).any(axis=2))

    def with_one_more(self, tokens: Ids, found: Comparison) -> Entries:
        """One more entry for each column."""
        return Entries(
            np.column_stack([self.tokens, tokens]),
            np.column_stack([self.references, found.references]),
            np.column_stack([self.values, found.values]),
            np.column_stack([self.errors, found.errors]),
            np.column_stack([self.carried, found.carried]),
        )

    def without_contradictions(self, residuals: Array, explained: Array) -> Entries:
        """Error bars as wide as the residuals of a fit show. explained: error bars of the fitted scores.

        In columns that contradict themselves, carried entries are left out: a prediction was wrong.
        """
        bars = np.hypot(self.errors, explained)
        excess = np.abs(residuals) / np.where(bars > 0.0, bars, np.inf)
        wrong = excess.max(axis=1, initial=0.0, where=np.isfinite(self.errors)) > _CONTRADICTION
        dropped = self.carried & wrong[:, None]
        wide = ~wrong[:, None] & (excess > 3.0)
        widened = np.where(wide, np.abs(residuals) / 3.0, self.errors)
        return replace(
            self,
            errors=np.where(dropped, np.inf, widened),
            values=np.where(dropped, 0.0, self.values),
            tokens=np.where(dropped, _NONE, self.tokens),
            references=np.where(dropped, _NONE, self.references),
        )
