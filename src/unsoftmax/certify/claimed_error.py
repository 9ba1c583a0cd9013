"""Is a claimed error true? Fresh sequences on which a model that is half wrong would answer otherwise.

A learner says that the parameters are known to a relative error. Models that are off by that much, and models
of which one group of parameters is off by half, are drawn at random. Sequences are drawn too, without a
query, and for every group those are asked on which the second differ most from the first, beside the errors
of the answers. So every group of parameters that the model has is measured against the claim, whatever the
family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from unsoftmax.answers import Answers, Computed, Labels, Noisy, Rounded, Stored, Within
from unsoftmax.arrays import EPS, Array, largest, rms
from unsoftmax.certify.changed_models import drawn_change, scaled, warmer
from unsoftmax.certify.claim_sequences import SHORT, SMALLEST_CLAIM, candidates
from unsoftmax.ledger import VERIFICATION, Asker, median_answers
from unsoftmax.models import Model
from unsoftmax.models.parameter_groups import ParameterGroup, Role, parameter_groups
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["CLAIM_TEST", "Shown", "check_claim"]

CLAIM_TEST = Test("fresh sequences deviate by no more than the claimed error of the parameters moves them")

_EVERY_FOURTH = 4  # of those that are asked for a group is of the one longer length, and of the other
_SLIGHTLY = 30.0  # times the claim: the error of a group that must show in longer sequences
_ASKED = 16  # sequences for each group of parameters
# sequences of each length that are drawn, without a query; more where too few of them tell: through eight
# bits, and a claim of 5 %, one in a hundred does
_CANDIDATES = (256, 1024, 4096)
_NEAR, _FAR = 6, 2  # models drawn that are off by the claim, and of each group those that are off by half
_WRONG = 0.5  # relative error of a group that must show
# 16 products of two normal factors, as an error matrix of rank one moves scores, exceed twice their expected
# root mean square once in 190 times, and three times once in 30,000; bounds are usually 3 times the error
_CONTRADICTED = 2.0
_STANDS_OUT = 2.0  # times what errors explain: what a half wrong group moves at least, to be seen
# root mean squares of the rounding inside a target: steps round by chance, and few rows do not round alike
_USUAL_ROUNDING = 2.0
_ONE_OF = 12  # sequences behind short arithmetic of which one is left out
_BESIDE = 1.5  # labels are asked where the value is so many times what the claim usually moves it
_LABELS = 32  # as many are asked for a group
# of them; each is wrong once in 15 times where the error is as large as the claim, so that seven are wrong
# once in 220 times
_WRONG_LABELS = 6


# makes a model when it is called: hundreds of them are compared, and one is held at a time
_Made = Callable[[], Model]


@dataclass(frozen=True)
class Shown:
    """Relative errors of the parameters: what answers could have shown, and what they did show."""

    could: float = 0.0
    did: float = 0.0


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sequences of one length, what the model says, and how far values move when it is off.

    off: how far an answer may be from the value by itself. near: when all parameters are off by the claim.
    far: when that group is off by `wrong`. least: the same in the way that moves them least.
    """

    rows: Array
    values: Array
    off: Array
    near: Array
    far: dict[ParameterGroup, Array]
    least: dict[ParameterGroup, Array]
    wrong: float

    @property
    def longer(self) -> bool:
        return bool(self.rows.shape[1] > max(SHORT))

    def power(self, group: ParameterGroup) -> Array:
        """How well every sequence shows that this group is wrong; longer ones, in whatever way it is: a
        target may be another function there, and a factor moves less than errors in random directions."""
        return np.asarray((self.least if self.longer else self.far)[group] / (self.off + self.near))


def check_claim(
    asker: Asker,
    model: Model,
    claim: float,
    ruler: Answers,
    rng: np.random.Generator,
    *,
    constant: float = 0.0,
) -> Shown:
    """The relative error of the parameters that these answers could have shown, and did show, over all
    groups.

    Raises `OutsideClass` where answers deviate further than a claim of this size explains, `Unresolved` where
    a group that is half wrong would not show. constant: how far c may be off by itself.
    """
    groups = parameter_groups(model)
    near = [drawn_change(model, groups, max(claim, SMALLEST_CLAIM), rng) for _ in range(_NEAR)]
    far = _wrong_models(model, groups, _WRONG, rng)
    slightly = min(_WRONG, _SLIGHTLY * max(claim, SMALLEST_CLAIM))
    nearly = _wrong_models(model, groups, slightly, rng)
    drawn: list[_Drawn] = []
    for more in _CANDIDATES:
        drawn.clear()
        for rows in candidates(asker, model, ruler, claim, rng, most=more, at_least=2 * _ASKED):
            wrong, models = (_WRONG, far) if rows.shape[1] in SHORT else (slightly, nearly)
            drawn.append(_judged(model, rows, ruler, constant, near, models, wrong))
        if all(_tells(drawn, group, ruler) for group in groups):
            break
    worst = Shown()
    for group in groups:
        shown = _check_group(asker, model, group, drawn, ruler, claim)
        if group.role is not Role.CONSTANT:
            worst = Shown(max(worst.could, shown.could), max(worst.did, shown.did))
    return worst


def _wrong_models(
    model: Model, groups: list[ParameterGroup], wrong: float, rng: np.random.Generator
) -> dict[ParameterGroup, list[list[_Made]]]:
    """For every group of parameters, models of which it is off by this relative error: larger, smaller, at
    another temperature, or in a random direction."""
    tensors = model.tensors()
    models: dict[ParameterGroup, list[list[_Made]]] = {}
    for group in groups:
        ways = [scaled] * group.full(tensors) + [warmer] * bool(group.scores)
        fixed: list[list[_Made]] = [
            [partial(way, model, group, factor)] for way in ways for factor in (1.0 - wrong, 1.0 + wrong)
        ]
        models[group] = [*fixed, [drawn_change(model, [group], wrong, rng) for _ in range(_FAR)]]
    return models


def _check_group(
    asker: Asker, model: Model, group: ParameterGroup, drawn: list[_Drawn], ruler: Answers, claim: float
) -> Shown:
    """The resolution of one group, and its error: asks the sequences that tell most of it, and compares."""
    asked = _asked(group, ruler)
    if not len(_strongest(drawn, group, asked)):
        raise Unresolved("the model gives every sequence that was tried the same label, which tells nothing")
    if not _tells(drawn, group, ruler):
        raise Unresolved(
            f"a model whose {group.name} is wrong by half would not have shown in these answers; longer rows "
            "(input_bound) or finer answers would help"
        )
    excess, moved, unseen, needed = [], [], [], [0.0]
    for each, chosen in zip(drawn, _chosen(drawn, group, asked), strict=True):
        if not len(chosen):
            continue
        rows, off, near = each.rows[chosen], each.off[chosen], each.near[chosen]
        beyond = _beyond(asker, rows, each.values[chosen], off, ruler)
        excess.append(beyond / (off + near))
        moved.append(near / (off + near))
        unseen.append(off / each.far[group][chosen] * each.wrong)
        if each.longer:
            least = each.least[group][chosen] / each.wrong
            clear = least * claim > off  # rounding of long rows whose scores cancel is estimated poorly
            needed.append(float(np.median(beyond[clear] / least[clear])) if clear.any() else 0.0)
    times = _compare(group.name, np.concatenate(excess), rms(np.concatenate(moved)), ruler, claim)
    if isinstance(ruler, Labels):
        return Shown()
    return Shown(
        float(np.median(np.concatenate(unseen))), max(claim * times if times > 1.0 else 0.0, *needed)
    )


def _asked(group: ParameterGroup, ruler: Answers) -> int:
    """How many sequences are asked for this group."""
    asked = _LABELS if isinstance(ruler, Labels) else _ASKED
    return asked // 4 if group.role is Role.CONSTANT else asked  # one number


def _strongest(drawn: list[_Drawn], group: ParameterGroup, asked: int) -> Array:
    """How well the short sequences show that this group is wrong that show it best."""
    short = [each.power(group) for each in drawn if each.rows.shape[1] in SHORT]
    return np.asarray(np.sort(np.concatenate(short))[::-1][:asked])


def _tells(drawn: list[_Drawn], group: ParameterGroup, ruler: Answers) -> bool:
    """Whether a model of which this group is wrong by half shows in all sequences that would be asked."""
    sizeless = isinstance(ruler, Labels) and group.role is Role.VALUES  # labels know no size of v
    if group.role is Role.CONSTANT or sizeless:
        return True
    strongest = _strongest(drawn, group, _asked(group, ruler))
    return len(strongest) > 0 and bool(strongest[-1] >= _STANDS_OUT)


def _chosen(drawn: list[_Drawn], group: ParameterGroup, asked: int) -> Iterator[NDArray[np.intp]]:
    """Which sequences of each length are asked for this group: those that tell most, and in place of a few of
    them some of every longer length, because a target may be another function there."""
    ranks = []
    for each in drawn:
        rank = each.power(group)
        if each.longer:
            best = np.argsort(-rank)[: asked // _EVERY_FOURTH]
            told = best[rank[best] >= _STANDS_OUT]
            rank = np.full(len(rank), -np.inf)
            rank[told] = np.inf
        ranks.append(rank)
    least = np.sort(np.concatenate(ranks))[::-1][:asked][-1]
    for rank in ranks:
        yield np.flatnonzero((rank >= least) & (rank > -np.inf))[:asked]


def _compare(name: str, excess: Array, expected: float, ruler: Answers, claim: float) -> float:
    """What was seen, in times of what the claim explains; 0 for labels, of which wrong ones are counted.
    Raises `OutsideClass` where that is too much."""
    times = 0.0
    if isinstance(ruler, Labels):
        wrong = int((excess > 0.0).sum())
        contradicted = wrong > _WRONG_LABELS * len(excess) / _LABELS
        seen = f"{wrong} of {len(excess)} labels that tell most of {name} are others than"
    else:
        if isinstance(ruler, Computed) and len(excess) > _ONE_OF:
            # the one sequence that may lie where a long row's head switches, which a few drawn models miss
            excess = np.sort(excess)[:-1]
        times = rms(excess) / max(expected, 1e-300)
        contradicted = not times <= _CONTRADICTED
        seen = f"sequences that tell most of {name} deviate {times:.2g} times as far as"
    if contradicted:
        raise OutsideClass(CLAIM_TEST, f"{seen} parameters known to {claim:.1g} explain")
    return times


def _beyond(asker: Asker, rows: Array, values: Array, off: Array, ruler: Answers) -> Array:
    """How far answers are from the model, beyond their own errors. A wrong label counts as the value's
    size."""
    with asker.phase(VERIFICATION):
        answers = median_answers(asker, rows, ruler.repeats)
    if isinstance(ruler, Labels):
        return np.where((answers > ruler.middle) == (values > 0.0), 0.0, np.abs(values))
    beyond = np.maximum(largest(answers - values) - off, 0.0)
    return np.where(np.isfinite(beyond), beyond, np.inf)


def _judged(
    model: Model,
    rows: Array,
    ruler: Answers,
    constant: float,
    near: list[_Made],
    far: dict[ParameterGroup, list[list[_Made]]],
    wrong: float,
) -> _Drawn:
    if isinstance(ruler, Labels):
        rows = _beside_zero(model, rows, near)
    values = model(rows)
    ways = {group: [_moves(values, rows, way) for way in kinds] for group, kinds in far.items()}
    floor = 0.0 if isinstance(ruler, Labels) else _floor(values)
    least = {group: np.min(moved, axis=0) - floor for group, moved in ways.items()}
    # labels say nothing of how far, so they are asked where every way shows: errors in random directions move
    # most, and would choose sequences on which twice the group moves nothing
    moves = least if isinstance(ruler, Labels) else {group: _together(each) for group, each in ways.items()}
    size = largest(values) + np.max(list(moves.values()), axis=0) / wrong
    off = _own_errors(model, rows, values, size, ruler) + constant
    return _Drawn(rows, values, off, _moves(values, rows, near), moves, least, wrong)


def _own_errors(model: Model, rows: Array, values: Array, size: Array, ruler: Answers) -> Array:
    """How far answers may be from the values by themselves; nothing for labels, whose values are chosen.
    size: of the values, and of what cancels in them."""
    rounding = model.rounding(rows, values)
    match ruler:
        case Labels():
            return rounding
        case Stored():
            return rounding + largest(ruler.off(values))
        case Within() | Noisy() | Rounded():
            return rounding + 1.05 * ruler.tolerance
        case Computed():
            return rounding + _USUAL_ROUNDING * ruler.noise * size
        case _:
            return rounding


def _together(ways: list[Array]) -> Array:
    """Root mean square over the ways in which a group may be wrong."""
    return np.asarray(np.sqrt(np.mean(np.square(ways), axis=0)))


def _moves(values: Array, rows: Array, models: list[_Made]) -> Array:
    """How far the values of these models are from the given ones: root mean square over the models."""
    moved = np.array([largest(made()(rows) - values) for made in models])
    return np.asarray(np.sqrt(np.mean(np.square(moved), axis=0))) + _floor(values)


def _floor(values: Array) -> Array:
    """What rounding moves by itself."""
    return np.asarray(64.0 * EPS * largest(values))


def _beside_zero(model: Model, rows: Array, near: list[_Made]) -> Array:
    """Sequences between two of opposite sign, whose values are as far from zero as a label must show."""
    values = model(rows)
    above, below = rows[values > 0.0], rows[values < 0.0]
    n = min(len(above), len(below))
    if not n:
        return rows[:0]
    above, below = above[:n], below[:n]
    zero = _between(model, above, below, np.zeros(n))
    beside = _BESIDE * _moves(model(zero), zero, near)
    high = _between(model, above, zero, beside)
    low = _between(model, zero, below, -beside)
    return np.concatenate([high, low])


def _between(model: Model, above: Array, below: Array, wanted: Array) -> Array:
    """Sequences on the lines between two, with the wanted values as near as 40 halvings come."""
    low, high = np.zeros(len(above)), np.ones(len(above))
    for _ in range(40):
        middle = (low + high) / 2
        larger = model(below + middle[:, None, None] * (above - below)) > wanted
        low, high = np.where(larger, low, middle), np.where(larger, middle, high)
    return np.asarray(below + high[:, None, None] * (above - below))
