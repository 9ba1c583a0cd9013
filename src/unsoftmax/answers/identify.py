"""What kind of answers are these: exact, rounded, stored in a short format, off by a tolerance, noisy,
clipped, or labels?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from unsoftmax.answers import kinds
from unsoftmax.answers.along_rays import (
    Segments,
    ask_rows,
    deviations_from_lines,
    far_deviation,
    find_limits,
    random_rows,
    rounding_of,
)
from unsoftmax.answers.arithmetic import MOST_UNITS
from unsoftmax.answers.cast_rows import cast_format, cast_noise, even_part
from unsoftmax.answers.findings import IDENTIFY, Finding
from unsoftmax.answers.looks_computed import look_at_arithmetic, look_beside_others, look_closer
from unsoftmax.answers.looks_exact import CANCELS
from unsoftmax.answers.short_noise import longest_row
from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.float_formats import FloatFormat, decimals_of, smallest_format
from unsoftmax.ledger import Asker

__all__ = ["Identified", "identify", "identify_cast_rows"]

# of a format, that affine answers of opposite rows may leave; attention in bfloat16 left two
_EVEN_UNITS = 16.0
# of float32 or float64, that answers to short rows are apart where two heads cancel: two were seen
_CONSTANT_UNITS = 8.0
_FARTHEST = 1e4  # how far out to look when the rows have no bound
_SIZES = 40  # sizes of rows tried, each 30 times the last: 59 decades, more than float64 squares allow
_TINY = 1e-9  # of the rows: so short that no limit of answers is reached by any of them
_COVER = 1.25  # a tolerance seen on 30 answers is a little below the true one
_MORE_ON_RAY = 150  # labels that measure the rate of flips to 2 %
# with one label in twenty flipped, so many all agree once in a hundred times; other rays see the rest
_SAME_RAY = 90
# lines through far answers are off by more than this many times the errors only when the function bends
_CURVED = 6.0
# of rounding seen on 20 second differences, that the standard deviation of 6 rows asked three times may be:
# with 12 and 20 degrees of freedom, equal ones are further apart once in 100,000 times
_FLICKER = 3.0
_REPEATS = 24  # answers to one row: all in ascending order by chance once in 10^23 times
_BY_CHANCE = 1e-6  # that answers of which some are equal are in order
_ROUNDED = 1e-5  # of the answers to the longest rows asked: float32 layers are off by less
_HALF_FLOAT = 3e4  # float16 overflows at 65504
# norm of rows where longer ones overflow: scores of the usual size are then far below 65504
_SHORT_ROWS = 64.0


@dataclass(frozen=True)
class Identified:
    """The kind of answers, what was seen of it, and what seeing it cost. bends: single rows are not answered
    affinely."""

    answers: kinds.Answers
    evidence: str
    queries: int = 0
    bends: bool = False

    @property
    def finding(self) -> Finding:
        """The same as a finding of a result."""
        return Finding("answers", self.answers.name, self.evidence, self.queries)


@dataclass(frozen=True)
class _Near:
    """Answers to six rows, three times each, to their opposites, and to rows 3.7 times as long."""

    rows: Array
    size: float
    thrice: Array
    all: Array

    @property
    def repeats(self) -> bool:
        """Whether every row was answered alike three times."""
        return bool((self.thrice == self.thrice[0]).all())

    @property
    def flickers(self) -> bool:
        """Whether repeats are apart, but by no more than sums in another order are in a short format."""
        short = smallest_format(self.all)
        if short is None or self.repeats:
            return False
        return float(np.ptp(self.thrice, axis=0).max()) <= MOST_UNITS * short.unit * rms(self.thrice)

    @property
    def sigma(self) -> float:
        """Standard deviation of the answers to one row."""
        return rms(self.thrice - self.thrice.mean(axis=0)) * float(np.sqrt(1.5))

    @property
    def values(self) -> int:
        """Number of different answers; one where they differ by no more than rounding of a constant."""
        unit = EPS if smallest_format(self.all) is None else FloatFormat.FLOAT32.unit
        rounding = _CONSTANT_UNITS * unit * float(np.abs(self.all).max())
        return 1 if float(np.ptp(self.all)) <= rounding else len(np.unique(self.all))


def identify(asker: Asker, rng: np.random.Generator) -> Identified:
    """The kind of answers of an oracle, from 40 to 90 one-row queries (60 more where steps inside may round,
    more too where labels are flipped).

    >>> import unsoftmax
    >>> oracle = unsoftmax.Rounded(unsoftmax.as_oracle("demo:single-head?d=4"), 2)
    >>> found = identify(unsoftmax.Ledger(oracle), np.random.default_rng(0))
    >>> found.answers, found.queries
    (Rounded(decimals=2), 40)
    """
    before = asker.bill.total
    with asker.phase(IDENTIFY):
        found = _identify(asker, rng)
    return replace(found, queries=asker.bill.total - before)


def _identify(asker: Asker, rng: np.random.Generator) -> Identified:
    farthest = _FARTHEST if asker.input_bound is None else asker.input_bound
    near = _look_near(asker, rng, farthest)
    if near.values == 1:
        text = f"every row up to a norm of {3.7 * near.size:.3g} is answered {near.all[0]:.6g}"
        short = smallest_format(near.all) is not None
        beside = look_beside_others(asker, rng.spawn(1)[0], farthest) if short else None
        if beside is not None and beside.alike and beside.stored is not None:
            text = f"{text}, and pairs of rows otherwise, in {beside.stored} numbers: what heads show cancels"
            return Identified(kinds.Computed(beside.stored, beside.stored.unit), text)
        return Identified(kinds.Constant(float(near.all[0])), text)
    if near.values == 2 and (found := _labels(asker, rng, near, farthest)) is not None:
        return found
    steady = near.repeats or near.flickers
    if steady and smallest_format(near.all) is FloatFormat.FLOAT16:
        slope = float(np.abs(near.all).max()) / near.size
        farthest = min(farthest, max(near.size, _HALF_FLOAT / (3 * slope)))
    noisy = None if steady else near.thrice
    on_grid = decimals_of(near.all) is not None
    largest = near.rows[int(np.abs(near.thrice.mean(axis=0)).argmax())]
    try:
        clip, straight = find_limits(asker, near.rows, largest, near.size, farthest, noisy, on_grid)
    except NonFiniteAnswers:  # long rows overflow inside the target, which float16 does early
        if farthest <= _SHORT_ROWS:
            raise
        farthest = _SHORT_ROWS
        clip, straight = find_limits(asker, near.rows, largest, near.size, farthest, noisy, on_grid)
    inside = near.all if clip is None else near.all[(near.all > clip[0]) & (near.all < clip[1])]
    found = _short_numbers(inside) if steady and len(inside) >= 4 else None
    largest_near = float(np.abs(near.all).max())
    if largest_near < CANCELS * near.size and (found is None or not _pairs_are_short(asker, rng, farthest)):
        text = f"single rows are answered zero to {largest_near:.1g}, which is rounding"
        return Identified(kinds.Exact(), text)
    if found is not None:
        found = _inside(asker, rng, farthest, found)
        steadied = found if near.repeats else _with_flicker(found, near)
        if steadied is not None:
            return _clipped(steadied, clip)
    if not near.repeats:
        return _clipped(_noise(asker, near, clip), clip)
    found = _off_lines(asker, rng, near.size, straight, clip)
    largest_far = largest_near * max(1.0, straight / near.size)
    if isinstance(found.answers, kinds.Within) and found.answers.tau < _ROUNDED * largest_far:
        found = _inside(asker, rng, farthest, found)
    elif found.answers.exact and (cast := identify_cast_rows(asker, rng.spawn(1)[0])) is not None:
        found = cast  # on its grid of rows, such a function is as exact as any
    return _clipped(found, clip)


def _with_flicker(found: Identified, near: _Near) -> Identified | None:
    """The same where answers that do not repeat are apart by rounding inside the target alone, as where sums
    are taken in another order in every call; None where they are further apart."""
    if not isinstance(found.answers, kinds.Computed):
        return None
    relative = near.sigma / rms(near.thrice)
    if relative > _FLICKER * found.answers.noise:
        return None
    text = f"{found.evidence}; answers to the same row differ by {relative:.1g} relative"
    return replace(
        found, answers=replace(found.answers, noise=max(found.answers.noise, relative)), evidence=text
    )


def _pairs_are_short(asker: Asker, rng: np.random.Generator, farthest: float) -> bool:
    """Whether pairs of rows are answered in numbers of a short format too. What is left of answers that
    cancel has few digits in any format."""
    beside = look_beside_others(asker, rng.spawn(1)[0], farthest)
    return beside is None or beside.stored is not None


def _inside(asker: Asker, rng: np.random.Generator, farthest: float, found: Identified) -> Identified:
    """Whether answers that are off are so because every step inside the target rounds."""
    if isinstance(found.answers, kinds.Rounded):
        return found
    seen = look_at_arithmetic(asker, rng.spawn(1)[0], farthest)
    if seen.format is None and seen.bends:
        nearby, beside = look_closer(asker, rng, farthest)
        if nearby.format is not None:
            bends = beside is None or not beside.straight
            return Identified(kinds.Computed(nearby.format, nearby.noise), nearby.sentence, bends=bends)
    if seen.format is None:
        if isinstance(found.answers, kinds.Stored) and not seen.bends:
            return found
        cast = identify_cast_rows(asker, rng.spawn(1)[0])
        stored = (
            cast is not None
            and isinstance(cast.answers, kinds.Computed)
            and found.answers == kinds.Stored(cast.answers.format)
        )
        return found if cast is None or stored else cast
    return Identified(kinds.Computed(seen.format, seen.noise), seen.sentence)


def identify_cast_rows(asker: Asker, rng: np.random.Generator) -> Identified | None:
    """Answers with more digits than the format to which rows are rounded first; None where they are not
    rounded. Three queries, and about 130 where they are."""
    before = asker.bill.total
    with asker.phase(IDENTIFY):
        short = cast_format(asker, rng)
        if short is None:
            return None
        longest = _FARTHEST if asker.input_bound is None else asker.input_bound
        # rows of eighths are held by every format, so they show arithmetic alone; others round themselves
        noise = max(
            look_at_arithmetic(asker, rng, longest).noise, short.unit, cast_noise(asker, rng, longest)
        )
        even = 0.0 if short is FloatFormat.FLOAT32 else even_part(asker, rng, longest)
    text = f"every row is answered as the same row in {short}"
    bends = noise > MOST_UNITS * short.unit or even > _EVEN_UNITS * short.unit
    return Identified(
        kinds.Computed(short, short.unit if bends else noise), text, asker.bill.total - before, bends
    )


def _clipped(found: Identified, clip: tuple[float, float] | None) -> Identified:
    """The same answers between limits, where there are any."""
    return found if clip is None else replace(found, answers=kinds.Clipped(clip, found.answers))


def _look_near(asker: Asker, rng: np.random.Generator, farthest: float) -> _Near:
    """Rows at a size at which answers move, if there is one."""
    size = min(1.0, farthest / 4)
    for _ in range(_SIZES):
        rows = size * random_rows(rng, 6, asker.width)
        thrice = np.stack([ask_rows(asker, rows) for _ in range(3)])
        answers = np.concatenate([thrice.ravel(), ask_rows(asker, -rows), ask_rows(asker, 3.7 * rows)])
        near = _Near(rows, size, thrice, answers)
        if near.values == 2 and len(np.unique(np.append(answers, ask_rows(asker, _TINY * rows)))) > 3:
            size *= 0.01  # two values that are limits: shorter rows have others
        elif near.values > 1 or 30.0 * 4 * size > farthest:
            break
        else:
            size *= 30.0
    return near


def _short_numbers(answers: Array) -> Identified | None:
    """Answers that are whole multiples of a power of ten, or numbers of a short format."""
    decimals, short = decimals_of(answers), smallest_format(answers)
    if short is not None and np.abs(answers).max() > 2.0 ** (short.mantissa_bits + 1):
        decimals = None  # large numbers of a format are whole without being rounded
    if decimals == 0 or (decimals is not None and short is None):
        kind = kinds.Rounded(decimals)
        return Identified(kind, f"{len(answers)} answers are whole multiples of {kind.step:g}")
    return (
        None
        if short is None
        else Identified(kinds.Stored(short), f"{len(answers)} answers are {short} numbers")
    )


def _off_lines(
    asker: Asker, rng: np.random.Generator, size: float, straight: float, clip: tuple[float, float] | None
) -> Identified:
    """Answers that repeat and use all digits: exact where they lie on lines, else off by a tolerance."""
    deviations, level = deviations_from_lines(asker, rng, size, straight, clip)
    if (
        not len(deviations)
        and clip is not None
        and kinds.NO_LIMITS[0] < clip[0]
        and clip[1] < kinds.NO_LIMITS[1]
    ):
        return Identified(kinds.Labels(), "hardly an answer lies between the lowest and the highest one")
    if not len(deviations):  # no labels, which have two values: a function that is flat around zero
        return Identified(kinds.Exact(), "short rows get one answer, and longer ones others, with all digits")
    worst = float(np.ptp(deviations)) / 2  # the line's own error shifts all of them alike
    text = f"answers repeat, use all digits and lie on lines to {worst:.1g}"
    text = text if clip is None else kinds.limits_in_words(clip)
    if worst <= rounding_of(level, asker.width):
        return Identified(kinds.Exact(), text)
    short = "answers repeat, use all digits and lie on lines along short segments"
    short = short if clip is None else text
    bends = Segments(asker, 0.3 * size * random_rows(rng, 3, asker.width))
    if bends.straight(worst):
        return Identified(kinds.Exact(), short)
    rows = straight * random_rows(rng, 3, asker.width)
    far = 0.0 if clip is not None else far_deviation(asker, rng, rows)
    if far > _CURVED * worst:
        # errors do not grow with the rows: the function itself bends, or its answers are coarse
        bends = Segments(asker, 0.99 * rows)
    if bends.moves and bends.rounded:
        return Identified(kinds.Exact(), short)
    if bends.moves and max(worst, far) > _CURVED * bends.largest:
        text = (
            f"{len(deviations)} answers repeat, but lie up to {bends.largest:.2g} off lines along short "
            "segments; along whole rays they bend"
        )
        return Identified(kinds.Within(_COVER * bends.largest), text)
    text = f"{len(deviations)} answers repeat, but lie up to {worst:.2g} off a line"
    return Identified(kinds.Within(_COVER * max(worst, far)), text)


def _noise(asker: Asker, near: _Near, clip: tuple[float, float] | None) -> Identified:
    """Fresh errors, or a target whose answers change with time or with having been asked before?"""
    low, high = clip if clip is not None else (-np.inf, np.inf)
    thrice = near.thrice
    inside = (thrice.min(axis=0) > low) & (thrice.max(axis=0) < high)
    if not inside.any():
        return Identified(kinds.Labels(), "hardly an answer lies between the lowest and the highest one")
    row = int(np.flatnonzero(inside)[0])
    again = np.concatenate([ask_rows(asker, near.rows[row : row + 1]) for _ in range(_REPEATS)])
    series = np.concatenate([thrice[:, row], again])
    if _drifts(series):
        text = (
            f"a row asked {len(series)} times was answered {thrice[0, row]:.9g} at first and "
            f"{again[-1]:.9g} at last, never turning back"
        )
        return Identified(kinds.Unsteady(), text)
    apart = np.concatenate([(thrice - thrice.mean(axis=0))[:, inside].ravel(), again - again.mean()])
    sigma = float(np.sqrt(np.sum(apart**2) / (len(apart) - int(inside.sum()) - 1)))
    text = f"the same row is answered differently, with a standard deviation of {sigma:.2g}"
    opposite = near.all[thrice.size : thrice.size + len(near.rows)]
    longest = longest_row(near.rows, thrice[0], opposite, sigma)
    if np.isfinite(longest):
        text += f"; numbers of a short format, which rows longer than {longest:.2g} round further"
    return Identified(kinds.Noisy(sigma, longest), text)


def _drifts(series: Array) -> bool:
    """Whether answers to one row never turn back, which fresh errors do. Those stored in a short format may
    be equal: then the order counts where chance gives it once in a million times."""
    steps = np.diff(series)
    if not ((steps >= 0.0).all() or (steps <= 0.0).all()):
        return False
    counts = np.unique(series, return_counts=True)[1]
    orders = lgamma(len(series) + 1) - sum(lgamma(count + 1) for count in counts.tolist())
    return smallest_format(series) is None or orders > log(2.0 / _BY_CHANCE)


def _labels(asker: Asker, rng: np.random.Generator, near: _Near, farthest: float) -> Identified | None:
    """Two values near zero are labels when rows far away give no third one (coarse rounding would)."""
    values = np.unique(np.append(near.all, ask_rows(asker, near.rows * (farthest / near.size))))
    if len(values) > 2:
        return None
    middle = float(values.mean())
    seen = f"every answer is {values[0]:g} or {values[1]:g}"
    sizes = np.sort(rng.uniform(0.5, 2.0, _SAME_RAY))
    labels = ask_rows(asker, near.rows[:1] * sizes[:, None]) == values[1]
    turns = int(np.count_nonzero(np.diff(labels)))
    if near.repeats and turns == 0:
        return Identified(kinds.Labels(middle=middle), seen)
    more = rng.uniform(0.5, 2.0, _MORE_ON_RAY)
    if near.repeats:
        more[:_SAME_RAY] = sizes
    again = ask_rows(asker, near.rows[:1] * more[:, None]) == values[1]
    if near.repeats and bool((again[:_SAME_RAY] == labels).all()):
        text = f"{seen}, and along a ray the label turns {turns} times, at the same places when asked again"
        return Identified(kinds.Labels(middle=middle), text)
    flip = _flipped(np.append(labels, again)[np.argsort(np.append(sizes, more))])
    text = f"{seen}, and the same ray is labelled both ways, {flip:.1%} of the time"
    return Identified(kinds.Labels(flip, middle), text)


def _flipped(labels: NDArray[np.bool_]) -> float:
    """The share of labels along a ray that are wrong, if the true one turns at most once."""
    before = np.concatenate([[0], np.cumsum(labels)])  # ones before each place where it could turn
    # when it turns there from 0 to 1
    wrong = before + (len(labels) - np.arange(len(labels) + 1)) - (before[-1] - before)
    return float(min(wrong.min(), (len(labels) - wrong).min())) / len(labels)
