"""A low-rank table of scores from single entries: adaptive cross approximation with a weighted fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens import PairReader, TokenPairMeter
from unsoftmax.solvers.score_table.columns import ColumnFitter
from unsoftmax.solvers.score_table.cross import CrossOptions, find_cross
from unsoftmax.solvers.score_table.keys import KeyFitter
from unsoftmax.solvers.score_table.table import Table

__all__ = ["CrossApproximation", "ScoreTable"]

_UNSEEN = 0.5  # error of the scores of one asking token: half of a score of one, as for single entries
_LEAST_SLACK, _MOST_SLACK = 4.0, 1e5  # loss, in units of the answers' noise, that a table may be allowed


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """keys, queries: (V, r) with T_ij = (keys_i − keys_j)·queries_j.

    losses: for every asking token, how far answers are usually off at most by the errors of the table.
    token_losses: the same by the keys of a token. score_errors: root mean square error of the scores of every
    asking token. resolved: False when the largest rank allowed did not
    explain all entries. strong: whether some scores are too strong for the askers of the cross.
    """

    keys: Array
    queries: Array
    losses: Array
    token_losses: Array
    score_errors: Array
    resolved: bool
    strong: bool

    @property
    def loss(self) -> float:
        """The largest of all losses."""
        return float(max(self.losses.max(initial=0.0), self.token_losses.max(initial=0.0)))

    @property
    def unseen(self) -> int:
        """Number of asking tokens whose scores show too faintly in answers to be known."""
        return int(np.sum(self.score_errors > _UNSEEN))

    @property
    def score_error(self) -> float:
        """Root mean square error of the scores; those of `unseen` tokens are left out."""
        known = np.where(self.score_errors <= _UNSEEN, self.score_errors, 0.0)
        return float(np.sqrt(np.mean(known**2)))


@dataclass(frozen=True)
class CrossApproximation:
    """Full columns of r askers, r entries of every other column, and more where a fit needs them.

    Queries: r(2V − 1 − r), and a few for candidates; more where scores are strong.
    accuracy: how far answers may be off by the table, relative to their spread; never asked to be below four
    times their noise, nor above 1e5 times it. extra: the most further entries of a column, as a multiple of
    the rank.
    """

    cross: CrossOptions = field(default_factory=CrossOptions)
    accuracy: float = 1e-11
    extra: float = 3.0

    def solve(
        self, meter: TokenPairMeter, rng: np.random.Generator, announce: Callable[[int], None] | None = None
    ) -> ScoreTable:
        """The table. `announce` is told the number of entries still to come."""
        reader = PairReader(meter)
        slack = float(np.clip(self.accuracy * meter.spread / meter.noise, _LEAST_SLACK, _MOST_SLACK))
        cross = find_cross(reader, replace(self.cross, slack=slack), rng)
        if announce is not None:
            announce(cross.rank * (meter.vocabulary - cross.rank))
        table = Table(reader, cross, slack * meter.noise, int(np.ceil(self.extra * cross.rank)) + 4, rng)
        everyone = np.arange(meter.vocabulary)
        others = ~np.isin(everyone, cross.askers)
        columns = ColumnFitter(table)
        columns.fit(everyone[cross.strong & others])
        if not cross.strong.all():
            KeyFitter.of(table).fit(everyone[~cross.strong])
            columns.fit(everyone[~cross.strong & others])
            columns.compare_rivals()
        if np.isinf(cross.errors).any():
            columns.check(everyone[others])
        strong = not cross.strong.all()
        return ScoreTable(
            table.keys,
            table.queries,
            table.losses,
            table.token_losses,
            table.score_errors(),
            cross.resolved,
            strong,
        )
