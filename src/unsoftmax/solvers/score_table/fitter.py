"""Columns or rows of a table, each fitted to a few entries, and to one more per round where a fit is poor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import Comparison, PairRequest
from unsoftmax.solvers.score_table.entries import Entries
from unsoftmax.solvers.score_table.table import Table
from unsoftmax.solvers.score_table.weighted_fits import WeightedFits

__all__ = ["Fitter", "Group", "in_doubt", "worst_of"]

Group = tuple[Ids, Entries]  # owners, and as many entries of each
Judge = Callable[[Ids, WeightedFits], tuple[Array, Array]]
_DOUBT = 12.0  # prospects of a score that is uncertain by s are worse by e^s, at most by e^12


def in_doubt(bars: Array, doubts: Array) -> Array:
    """Prospective error bars of scores that are only known to within `doubts`."""
    return np.asarray(bars * np.exp(np.minimum(doubts, _DOUBT)))


@dataclass(frozen=True, eq=False)
class Fitter(ABC):
    """Owners are asking tokens, whose queries are fitted, or tokens, whose keys are."""

    table: Table

    @property
    def limit(self) -> float:
        """Loss up to which a fit needs no further entry."""
        return self.table.limit

    def improve(self, owners: Ids, entries: Entries, judge: Judge | None = None) -> list[Group]:
        """Fits, and asks for more entries, one a round, until every fit is good or has its share.

        judge: `losses`, or another one. Returns all owners with their entries.
        """
        table, judge = self.table, judge or self.losses
        done: list[Group] = []
        for last in [False] * table.extra + [True]:
            entries, fits = self.fits(entries)
            losses, directions = judge(owners, fits)
            self.keep(owners, fits, losses)
            poor = losses > self.limit
            if last or not poor.any():
                return [*done, (owners, entries)]
            if not poor.all():
                done.append((owners[~poor], entries.part(~poor)))
            owners, entries, fits, directions = (
                owners[poor],
                entries.part(poor),
                fits.part(poor),
                directions[poor],
            )
            request = self.best_requests(owners, entries, fits, directions)
            entries = entries.with_one_more(self.partners(request), self.compare(request))
        return done

    def compare(self, request: PairRequest) -> Comparison:
        """One query for each pair."""
        return self.table.meter.compare(request)

    @abstractmethod
    def fits(self, entries: Entries) -> tuple[Entries, WeightedFits]:
        """Fits, and the entries as far as they agree with each other."""

    @abstractmethod
    def losses(self, owners: Ids, fits: WeightedFits) -> tuple[Array, Array]:
        """How far answers may be off by each fit, and the direction behind it."""

    @abstractmethod
    def keep(self, owners: Ids, fits: WeightedFits, losses: Array) -> None:
        """Puts what was fitted into the table."""

    @abstractmethod
    def best_requests(self, owners: Ids, entries: Entries, fits: WeightedFits, wanted: Array) -> PairRequest:
        """For each owner the entry that lowers the variance along `wanted` most."""

    @staticmethod
    @abstractmethod
    def partners(request: PairRequest) -> Ids:
        """The token of every requested pair that does not own it."""


def worst_of(losses: Array, directions: Array) -> tuple[Array, Array]:
    """The largest of several losses (n, k) of each fit, and its direction out of (n, k, r)."""
    worst, at = losses.argmax(axis=1), np.arange(len(losses))
    return losses[at, worst], directions[at, worst]
