"""The cross: askers whose scores span those of all others, and tokens that tell other columns apart.

A table of scores T_ij = (k_i − k_j)·q_j has rank r in the keys k. Full columns of r askers J give the keys;
r + 1 tokens I, affinely independent in them, are enough to read any other column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.meters.tokens import Mask, PairReader
from unsoftmax.outcomes import Unresolved

__all__ = ["Cross", "CrossOptions", "find_cross"]

# usual size of scores from which some cannot be read, so that askers are chosen by what they show
_STRONG = 2.5
_FIRST_PROBES, _PROBES = 3, 12  # random tokens by which that is judged, before and after
_UNUSUAL = 4.0  # a token is not weak as long as its keys are as well known as others' within this factor
_ALIKE = 1e-9  # relative: askers cannot tell two tokens apart whose scores differ by less
_NOISY = 1e3  # slack below which answers are too noisy for float64's accuracy
_MOST_UNREADABLE = 20  # candidates that may be given up, as a multiple of those wanted


@dataclass(frozen=True)
class CrossOptions:
    """candidates: askers that a rank has to explain before it is believed; strong_candidates: the same where
    scores are strong. sure: a residual counts as a new direction from so many error bars on. sure_with_noise:
    the same where answers are noisy, because small directions would be lost. most: largest rank. slack: how
    far answers may be off by the table, in units of their noise; the limits follow from it.
    """

    candidates: int = 6
    strong_candidates: int = 24
    sure: float = 30.0
    sure_with_noise: float = 8.0
    most: int | None = None
    slack: float = 1e5

    @property
    def ask_again(self) -> float:
        """Error bar of an entry, in units of noise over spread; 60 is usual for a pair of close values."""
        return max(0.3 * self.slack, 60.0)

    @property
    def weak(self) -> float:
        """Error bar of an entry, in the same units."""
        return max(10.0 * self.slack, 300.0)

    @property
    def key_loss(self) -> float:
        """How far answers may be off by the keys of one token, in units of noise."""
        return max(0.2 * self.slack, 10.0)


@dataclass(frozen=True, eq=False)
class Cross:
    """askers: J. scores, errors: T_iJ and its error bars, (V, r). rows: I, (r + 1,).

    keys: (V, r), the centred scores times `basis` (r, r), which makes them well-conditioned. strong: tokens
    whose keys are known well enough.
    readings: entries (value, error bar) of further columns that were read on the way, by asker and token.
    resolved: False when the largest rank does not explain them.
    """

    askers: Ids
    scores: Array
    errors: Array
    rows: Ids
    keys: Array
    basis: Array
    strong: Mask
    readings: dict[int, dict[int, tuple[float, float]]]
    resolved: bool

    @property
    def rank(self) -> int:
        """Number of askers in the cross."""
        return int(self.keys.shape[1])


class _Growing:
    """The cross while it grows."""

    def __init__(self, reader: PairReader, options: CrossOptions, rng: np.random.Generator) -> None:
        self.reader = reader
        self.meter = reader.meter
        self.options = options
        self.unit = self.meter.noise / self.meter.spread
        self.order = rng.permutation(self.meter.vocabulary)
        self.drawn = 0
        self.candidates: list[int] = []
        self.readings: dict[int, dict[int, tuple[float, float]]] = {}
        self.askers: list[int] = []
        self.columns: list[Array] = []
        self.bars: list[Array] = []
        self.rows: list[int] = [self.meter.extremes[0]]
        self.probes: list[int] = []
        for _ in range(options.candidates):
            self.draw()
        few = [int(i) for i in rng.permutation(self.meter.vocabulary)[:_PROBES]]
        self.read(few[:_FIRST_PROBES], self.candidates)
        seen = [abs(self.readings[j][i][0]) for j in self.candidates for i in few[:_FIRST_PROBES] if i != j]
        if seen and np.median(seen) > _STRONG:
            self.probes = few
            for _ in range(options.strong_candidates - options.candidates):
                self.draw()

    def draw(self) -> None:
        """One more candidate, if there is one left."""
        if self.drawn < len(self.order):
            self.candidates.append(int(self.order[self.drawn]))
            self.drawn += 1

    @property
    def scores(self) -> Array:
        return np.array(self.columns).reshape(len(self.columns), self.meter.vocabulary).T

    @property
    def errors(self) -> Array:
        return np.array(self.bars).reshape(len(self.bars), self.meter.vocabulary).T

    def read(self, rows: list[int], askers: list[int]) -> None:
        """The entries that are not read yet."""
        for j in askers:
            self.readings.setdefault(j, {})[j] = (0.0, 0.0)
        wanted = [(i, j) for j in askers for i in rows if i not in self.readings[j]]
        if wanted:
            tokens, asking = np.array(wanted).T
            found = self.reader.read(tokens, asking, limit=self.options.ask_again * self.unit)
            for (i, j), value, error in zip(wanted, found.values, found.errors, strict=True):
                self.readings[j][i] = (float(value), float(error))

    def rows_for(self, asker: int) -> list[int]:
        """The rows, and another one for an asker that is like one of them and so says nothing there."""
        scores = self.scores
        like = np.zeros(len(scores), dtype=bool)
        if scores.shape[1]:
            like = np.abs(scores - scores[asker]).max(axis=1) <= _ALIKE * np.abs(scores).max()
        like[asker] = True
        kept = [i for i in self.rows if not like[i]]
        if len(kept) == len(self.rows):
            return self.rows
        if not kept:
            return [int(i) for i in np.flatnonzero(~like)[:1]] or [asker]
        distance = np.where(like, -1.0, _distances(scores, kept))
        distance[kept] = -1.0
        farthest = int(distance.argmax())
        return [*kept, farthest] if distance[farthest] > 0.0 else kept

    def residual(self, asker: int) -> tuple[float, float] | None:
        """What the columns do not explain of a candidate, and its error bar; None if it cannot be read."""
        rows = self.rows_for(asker)
        value, bar = np.array([self.readings[asker][i] for i in rows]).T
        scores, errors = self.scores, self.errors
        inside = scores[rows] - scores[asker]
        uncertain = np.hypot(errors[rows], errors[asker])
        if not max(bar.max(), uncertain.max(initial=0.0)) < self.options.weak * self.unit:
            return None
        if len(rows) <= inside.shape[1]:  # no entry to spare: nothing can contradict
            return 0.0, 0.0
        left = np.linalg.svd(inside)[0][:, -1] if inside.shape[1] else np.ones(1)
        mix = np.linalg.lstsq(inside, value, rcond=None)[0] if inside.shape[1] else np.zeros(0)
        total = np.sqrt(np.sum(left**2 * (bar**2 + uncertain**2 @ mix**2)))
        return abs(float(left @ value)), float(total)

    def next_asker(self) -> int | None:
        """The candidate that is explained worst; None when all are explained."""
        unreadable = 0
        while True:
            self.read([*self.rows, *self.probes], self.candidates)
            for j in self.candidates:
                self.read(self.rows_for(j), [j])
            found = {j: self.residual(j) for j in self.candidates}
            lost = [j for j, seen in found.items() if seen is None]
            if not lost or unreadable > _MOST_UNREADABLE * self.options.candidates:
                break
            for j in lost:  # strong scores hide some entries: other candidates show theirs
                self.candidates.remove(j)
                unreadable += 1
                self.draw()
        readable = len(found) - len(lost)
        if (lost or unreadable) and 2 * readable < self.options.candidates:
            raise Unresolved(
                f"scores are so strong that {readable} of {unreadable + len(found)} columns can be read; "
                "longer sequences (more copies) would help"
            )
        new = {
            j: seen[0] * self.legible(j) for j, seen in found.items() if seen is not None and self._new(*seen)
        }
        return max(new, key=lambda j: new[j]) if new else None

    def legible(self, asker: int) -> float:
        """How much of a candidate's column can be read: one when all of it can."""
        if not self.probes:
            return 1.0
        bars = np.array([self.readings[asker][i][1] for i in self.probes])
        worst = max(self.readings[asker][i][1] for i in self.rows) / self.unit
        seen = float(np.mean(bars < self.options.ask_again * self.unit)) ** 4 + 1e-6
        return seen / (1.0 + worst / self.options.ask_again)

    def _new(self, size: float, bar: float) -> bool:
        sure = self.options.sure if self.options.slack > _NOISY else self.options.sure_with_noise
        return size > sure * max(bar, self.unit)

    def add(self, asker: int) -> None:
        """The whole column of an asker, and the token at which it is explained worst."""
        everyone = np.arange(self.meter.vocabulary)
        self.candidates.remove(asker)
        self.read([int(i) for i in everyone if i != asker], [asker])
        column, bar = np.array([self.readings[asker][int(i)] for i in everyone]).T
        self.askers.append(asker)
        self.columns.append(column)
        self.bars.append(bar)
        distance = _distances(self.scores, self.rows)
        worst = self.errors.max(axis=1) / self.unit
        sharp = np.where(worst < self.options.weak, 1.0 / (1.0 + worst / self.options.ask_again), 0.0)
        # tokens of unusual value are read without a third token for almost every asker
        apart = np.abs(self.meter.values - np.median(self.meter.values)) / self.meter.spread
        worth = distance * sharp * np.sqrt(np.minimum(apart, 0.1) + 0.01)
        worth[self.rows] = -1.0
        self.rows.append(int(worth.argmax()))
        del self.readings[asker]
        self.draw()

    def strong(self) -> Mask:
        """Tokens whose scores against the askers of the cross are known well enough for other askers too."""
        scores, errors = self.scores, self.errors
        known: Mask = np.all(errors < self.options.weak * self.unit, axis=1).reshape(-1)
        if not scores.shape[1]:
            return known
        losses = np.zeros(len(known))
        for j in (j for j in self.candidates if known[j] and all(i in self.readings[j] for i in self.rows)):
            value, bar = np.array([self.readings[j][i] for i in self.rows]).T
            if not np.isfinite(bar).all():
                continue
            mix = np.linalg.lstsq(scores[self.rows] - scores[j], value, rcond=None)[0]
            score = np.clip((scores - scores[j]) @ mix, -500.0, 500.0)
            weight = 1.0 / (1.0 + np.exp(-score))
            moves = weight * (1.0 - weight) * np.abs(self.meter.values - self.meter.values[j])
            with np.errstate(invalid="ignore"):
                losses = np.fmax(losses, moves * np.sqrt(errors**2 @ mix**2))
        usual = float(np.median(losses[known])) if known.any() else 0.0
        fine = known & (losses <= max(self.options.key_loss * self.meter.noise, _UNUSUAL * usual))
        fine[self.rows] = True
        return fine


def find_cross(reader: PairReader, options: CrossOptions, rng: np.random.Generator) -> Cross:
    """Grows the cross until every candidate is explained."""
    growing = _Growing(reader, options, rng)
    most = reader.meter.vocabulary - 1
    most = most if options.most is None else min(most, options.most)
    resolved = True
    while len(growing.askers) < most:
        asker = growing.next_asker()
        if asker is None:
            break
        growing.add(asker)
    else:
        resolved = most == reader.meter.vocabulary - 1 or growing.next_asker() is None
    scores, errors = growing.scores, growing.errors
    strong = growing.strong()
    if strong.sum() < min(reader.meter.vocabulary, 2 * len(growing.rows)):
        raise Unresolved(
            f"scores are so strong that only {int(strong.sum())} of {len(strong)} tokens can be compared by "
            f"{scores.shape[1]} askers; longer sequences (more copies) would help"
        )
    return Cross(
        np.array(growing.askers, dtype=np.int64),
        scores,
        errors,
        np.array(growing.rows, dtype=np.int64),
        *_keys(scores, strong),
        strong,
        growing.readings,
        resolved,
    )


def _distances(scores: Array, rows: list[int]) -> Array:
    """How far the scores of every token are from the flat through those of `rows`."""
    offsets = scores[rows[1:]] - scores[rows[0]]
    normal = np.linalg.svd(offsets)[2][-1] if len(offsets) else np.eye(scores.shape[1])[-1:].reshape(-1)
    return np.asarray(np.abs((scores - scores[rows[0]]) @ normal))


def _keys(scores: Array, strong: Mask) -> tuple[Array, Array]:
    """The scores in a basis that is orthonormal over the strong tokens, up to the root of their number; and
    the matrix that turns centred scores into it."""
    if not scores.shape[1]:
        return scores, np.zeros((0, 0))
    centred = scores - scores[strong].mean(axis=0)
    basis = np.linalg.inv(np.linalg.qr(centred[strong])[1]) * np.sqrt(strong.sum())
    return centred @ basis, basis
