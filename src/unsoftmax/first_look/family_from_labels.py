"""Which family is it, where answers are labels: where they turn is bisected, and what lies between two such
places tells the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.answers import Labels, Seen, Subject
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.first_look.asking import FirstLookAsker
from unsoftmax.meters.probes.mirrored_rows import odd_rows

__all__ = ["family_from_labels", "sure_labels"]

Bools = NDArray[np.bool_]

_TINY = 1e-9  # a constant so small against v is not looked for
_SHORT = 1e-11  # an asking row so short is nothing beside a query bias
_WRONG = 3e-5  # chance that a voted label is wrong
_MOST_VOTES = 99  # labels flipped less than 40 % are told with an error of 2 %
_DRAWS = 12  # rows in opposite pairs: labels are both there but once in 2000 times
_RAYS = 3  # as many as tell a constant from none
_TURNS = 5  # places on the boundary: ten lines between two
_BITS = 24  # of a place: 6e-8
_BESIDE = 1e-4  # how far beside a turn labels are compared, of the distance between two rows of either label
_MARGIN = 1e-5  # beside a boundary known to 6e-8
_PLACES = 3  # looked at more closely
_ASIDE = 1e-4  # of their distance: a kink so near is rare
_FINE_BITS = 40  # of a place: 1e-12
_FINE_BESIDE = 3e-11  # beside a boundary known to 1e-12
_PAIRS = 48  # mixtures of boundary points: one that is met in a tenth of them is missed once in 150 times


def family_from_labels(look: FirstLookAsker) -> Family:
    """Adds the findings on constant, single rows, query bias and family; the family that learning should
    begin with."""
    if look.longest == 1:
        look.add(Subject.FAMILY, lambda: (Family.RELU_NETWORK, "the target takes single rows only"))
        return Family.RELU_NETWORK
    constant = look.add(Subject.CONSTANT, lambda: _constant(look))
    boundary = _Boundary(look)
    shape = look.add(Subject.SINGLE_ROWS, boundary.shape)
    if shape == Seen.UNKNOWN:
        look.add(
            Subject.FAMILY,
            lambda: (
                Seen.UNKNOWN,
                "no two rows were labelled differently; one head is tried, and the certificate decides",
            ),
        )
        return Family.SINGLE_HEAD
    if shape == Seen.CURVED:
        look.add(Subject.FAMILY, boundary.made_of_flat_pieces)
        return Family.TRANSFORMER
    look.add(
        Subject.QUERY_BIAS,
        lambda: _bias_beside_constant(look) if constant == Seen.PRESENT else _bias_alone(look),
    )
    found = look.add(Subject.FAMILY, boundary.heads)
    return Family.MULTI_HEAD if found == Family.MULTI_HEAD else Family.SINGLE_HEAD


def sure_labels(look: FirstLookAsker, batch: Array) -> Bools:
    """True where the function is positive. Labels that are flipped now and then are asked again until one
    answer leads by enough."""
    kind = look.inner if isinstance(look.inner, Labels) else Labels()
    flip = min(kind.most_flipped, 0.45)
    lead = 1 if flip == 0.0 else int(np.ceil(np.log(_WRONG) / np.log(flip / (1.0 - flip))))
    score = np.zeros(len(batch), dtype=int)
    for _ in range(_MOST_VOTES):
        undecided = np.flatnonzero(np.abs(score) < lead)
        if not len(undecided):
            break
        score[undecided] += np.where(look.ledger.ask(batch[undecided]) > kind.middle, 1, -1)
    return np.asarray(score > 0)


def _constant(look: FirstLookAsker) -> tuple[str, str]:
    """Tiny rows in opposite directions: with a constant all of them have its label."""
    rows = look.rows(_DRAWS // 2, _TINY * look.near)
    labels = sure_labels(look, np.concatenate([rows, -rows])[:, None])
    if labels.all() or not labels.any():
        return (
            Seen.PRESENT,
            f"{_DRAWS} rows of norm {_TINY * look.near:.0e} in all directions have one label: a constant "
            "decides it",
        )
    return (
        Seen.NONE,
        f"rows of norm {_TINY * look.near:.0e} have either label: no constant that is larger against v",
    )


def _bias_beside_constant(look: FirstLookAsker) -> tuple[str, str]:
    """c + a·v is zero at some length of a; [2a; 0], whose rows weigh the same without a query bias, at the
    same one."""
    origin = bool(sure_labels(look, np.zeros((1, 1, look.ledger.width)))[0])
    A = look.rows(_DRAWS, look.far / 3)
    A = np.concatenate([A, -A])
    A = A[sure_labels(look, A[:, None]) != origin][:_RAYS]
    if not len(A):
        return Seen.UNKNOWN, "no ray on which the label turns was found"
    turns = (
        10.0
        ** _bisect(
            look, lambda logs: 10.0 ** logs[:, None] * A, np.full(len(A), -12.0), np.zeros(len(A)), origin
        )[:, None]
    )
    before, after = (
        sure_labels(look, np.stack([2.0 * near * turns * A, 0.0 * A], axis=1))
        for near in (1.0 - _BESIDE, 1.0 + _BESIDE)
    )
    odd = (before != origin) | (after == origin)
    if odd.any():
        return (
            Seen.PRESENT,
            f"a row of zeros asks: [2a; 0] does not turn with the row a alone, on {int(odd.sum())} of "
            f"{len(A)} rays",
        )
    return Seen.NONE, f"a row of zeros asks: [2a; 0] turns with the row a alone, on {len(A)} rays"


def _bias_alone(look: FirstLookAsker) -> tuple[str, str]:
    """[b+a; b-a; b] and its mirror image in b have opposite labels, however short b is; a query bias, which
    does not turn, labels them alike."""
    if look.longest is not None and look.longest < 3:
        return Seen.UNKNOWN, f"the target takes {look.longest} rows at most, and three are needed"
    size = min(look.near, look.far / 2)
    A, B = look.rows(_DRAWS, size), look.rows(_DRAWS, _SHORT * size)
    alike = sure_labels(look, odd_rows(A, B)) == sure_labels(look, odd_rows(A, -B))
    if alike.any():
        return (
            Seen.PRESENT,
            f"{int(alike.sum())} of {_DRAWS} pairs of opposite tiny asking rows are labelled alike",
        )
    return Seen.NONE, f"{_DRAWS} pairs of opposite tiny asking rows are labelled oppositely"


class _Boundary:
    """Places between rows of either label where the label turns, and what they tell.

    rows: rows of either label. turns: such places. across: for each of them, the way from a row labelled 0 to
    a row labelled 1 on which it lies.
    size, reach: norms of rows, and of turns about.
    """

    def __init__(self, look: FirstLookAsker) -> None:
        self.look = look
        self.size = 0.9 * look.far
        self.reach = np.full(_TURNS, self.size)
        self.turns = self.across = np.empty((0, look.ledger.width))
        self.rows: dict[bool, Array] = {}

    def shape(self) -> tuple[str, str]:
        """A plane, as for affine answers, or a curved surface? Places on lines through two turns turn too, on
        a plane."""
        rows = self.look.rows(4 * _TURNS, self.size)
        labels = sure_labels(self.look, rows[:, None])
        if labels.all() or not labels.any():  # one label is rare, then
            more = self.look.rows(20 * _TURNS, self.size)
            # far rows of one label around a middle of the other: no plane, but places to look at
            more[-1] = 0.0
            rows, labels = (
                np.concatenate([rows, more]),
                np.append(labels, sure_labels(self.look, more[:, None])),
            )
        ones, zeros = rows[labels], rows[~labels]
        self.rows = {True: ones, False: zeros}
        if not len(ones) or not len(zeros):
            return Seen.UNKNOWN, f"{len(rows)} rows of norm up to {self.size:.3g} have one label"
        which = np.arange(_TURNS)
        starts = zeros[which % len(zeros)]
        self.across = ones[which % len(ones)] - starts
        self.turns, _ = self._turns(starts, self.across, _BITS)
        if (
            not ones.any() or not zeros.any()
        ):  # only the middle has the other label: the turns may lie close to it
            self.across = (2.0 if ones.any() else -2.0) * self.turns
            self.turns, _ = self._turns(self.turns - self.across / 2, self.across, _BITS)
            self.reach = np.linalg.norm(self.turns, axis=1)
        first, second = np.triu_indices(_TURNS, 1)
        parts = self.look.rng.uniform(0.3, 0.7, len(first))[:, None]
        wrong = self._wrong_beside(
            parts * self.turns[first] + (1.0 - parts) * self.turns[second], self.across[first], _BESIDE
        )
        if wrong:
            return (
                Seen.CURVED,
                f"the label of single rows turns at {_TURNS} places, but not at {wrong} of {len(first)} "
                "places between two of them",
            )
        return (
            "affine",
            f"the label of single rows turns at {_TURNS} places and at {len(first)} places between two of "
            "them: on a plane",
        )

    def made_of_flat_pieces(self) -> tuple[str, str]:
        """Close to a turn, the surface of a ReLU network is a plane to the last digit; and rows of one label,
        far out, keep it together."""
        across = np.repeat(self.across[:_PLACES], 2, axis=0)
        aside = np.repeat(self.turns[:_PLACES], 2, axis=0)
        aside = aside + np.repeat(self.reach[:_PLACES], 2)[:, None] * self.look.rows(2 * _PLACES, _ASIDE)
        places, turned = self._turns(aside - 0.01 * across, 0.02 * across, _FINE_BITS)
        both = turned.reshape(-1, 2).all(axis=1)
        middles = places.reshape(_PLACES, 2, -1).mean(axis=1)[both]
        if 2 * self._wrong_beside(middles, across[::2][both], _FINE_BESIDE) > len(middles):
            return (
                Seen.NONE,
                "the surface where labels turn is curved, and not flat anywhere near the places that were "
                "looked at: no ReLU network",
            )
        broken, pairs = self._broken_pairs(self.look.rows(_PAIRS, self.size))
        if broken > pairs // 4:
            return (
                Seen.NONE,
                f"{broken} of {pairs} pairs of long rows of one label have the other label together: not one "
                "head below a network",
            )
        if not len(middles):
            return (
                Seen.UNKNOWN,
                "the surface where labels turn is curved, and nowhere was it met again close by; one head "
                "is tried",
            )
        return (
            Family.TRANSFORMER,
            "the surface where labels turn is bent, but flat near single places, and of two long rows one "
            "decides: a network over a head",
        )

    def heads(self) -> tuple[str, str]:
        """Rows just on one side of the plane: one head answers a mean of theirs, on the same side. Several
        heads pick different rows."""
        if self.look.ledger.width == 1:
            return (
                Seen.UNKNOWN,
                "rows of width 1 leave no room beside the place where labels turn; one head is tried, and "
                "the certificate decides",
            )
        side = np.arange(_PAIRS) % 2 == 1
        shares = self.look.rng.dirichlet(np.ones(_TURNS), (_PAIRS, 2))
        rows = shares @ self.turns + (_MARGIN * np.where(side, 1.0, -1.0))[:, None, None] * self.across.mean(
            axis=0
        )
        broken = self._broken(rows[: _PAIRS // 2], side[: _PAIRS // 2])
        if (
            self.look.longest is None or self.look.longest >= 3
        ):  # a third row that asks, from anywhere on that side
            asking = np.array([self.rows[one][index % len(self.rows[one])] for index, one in enumerate(side)])
            rows = np.concatenate([rows, asking[:, None]], axis=1)
        broken += self._broken(rows[_PAIRS // 2 :], side[_PAIRS // 2 :])
        if broken:
            text = (
                f"{broken} of {_PAIRS} sequences of rows on one side of the plane are labelled as on the "
                "other: one softmax cannot do that"
            )
            return Family.MULTI_HEAD, text
        if self.look.ledger.width == 2:  # rows on one line: heads that order them alike keep their labels too
            return (
                Seen.UNKNOWN,
                f"{_PAIRS} sequences keep their label, but rows of width 2 leave several heads little room; "
                "one head is tried",
            )
        return (
            Family.SINGLE_HEAD,
            f"{_PAIRS} sequences of rows on one side of the plane where labels turn keep their label, as "
            "under one softmax",
        )

    def _broken_pairs(self, rows: Array) -> tuple[int, int]:
        """How many pairs of rows of one label have the other one together, and how many pairs there were."""
        labels = sure_labels(self.look, rows[:, None])
        alike = [np.flatnonzero(labels == side) for side in (True, False)]
        pairs = np.array(
            [pair for some in alike for pair in zip(some[::2], some[1::2], strict=False)], dtype=int
        ).reshape(-1, 2)
        return self._broken(rows[pairs], labels[pairs[:, 0]]), len(pairs)

    def _broken(self, sequences: Array, side: Bools) -> int:
        """How many sequences have another label than each of their rows; asked again, rows and all, where it
        seems so."""
        odd = np.flatnonzero(sure_labels(self.look, sequences) != side)
        if not len(odd):
            return 0
        length, width = sequences.shape[1:]
        alone = sure_labels(self.look, sequences[odd].reshape(-1, 1, width)).reshape(-1, length)
        return int(
            (
                (alone == side[odd, None]).all(axis=1) & (sure_labels(self.look, sequences[odd]) != side[odd])
            ).sum()
        )

    def _turns(self, starts: Array, across: Array, bits: int) -> tuple[Array, Bools]:
        """Where the label turns on the way from each start, and whether it is 0 at the start and 1 at the end
        at all."""
        n = len(starts)
        labels = sure_labels(self.look, np.concatenate([starts, starts + across])[:, None])
        parts = _bisect(
            self.look, lambda parts: starts + parts[:, None] * across, np.zeros(n), np.ones(n), False, bits
        )
        return starts + parts[:, None] * across, ~labels[:n] & labels[n:]

    def _wrong_beside(self, places: Array, across: Array, distance: float) -> int:
        """How many places are not turns: the label is not 0 on the one side and 1 on the other."""
        below, above = (
            sure_labels(self.look, (places + sign * distance * across)[:, None]) for sign in (-1.0, 1.0)
        )
        return int((below | ~above).sum())


def _bisect(
    look: FirstLookAsker,
    rows: Callable[[Array], Array],
    low: Array,
    high: Array,
    label: bool,
    bits: int = _BITS,
) -> Array:
    """Numbers between `low`, where rows have that label, and `high`, where they have not, at which they turn;
    all together, a bit per round."""
    for _ in range(bits):
        middle = (low + high) / 2
        same = sure_labels(look, rows(middle)[:, None]) == label
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.asarray((low + high) / 2)
