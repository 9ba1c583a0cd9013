"""What kind of answers are these: exact, rounded, in low precision, off by a tolerance, noisy, clipped, or
labels?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.ledger import Ledger

__all__ = ["BENDS", "AnswerModel", "Finding", "first_look", "identify", "limits_in_words"]

IDENTIFY = "identify"
BENDS = "exact one-row answers bend"  # key of `Ledger.known`
_FARTHEST = 1e4  # how far out to look when the rows have no bound
_MOST_DECIMALS = 12
_SIZES = 40
_CANCELS = 1e-14  # answers so small against their rows are rounding of values that cancel
_TINY = 1e-9
_STRAIGHT = (
    1e-13  # of the answers: a straight segment bends by no more, a moving one moves by a thousand times that
)
_COVER = 1.25  # a tolerance seen on 30 answers is a little below the true one
_MORE_ON_RAY = 150
_SAME_RAY = (
    90  # with one label in twenty flipped, so many all agree once in a hundred times; other rays see the rest
)
# lines through far answers are off by more than this many times the errors only when the function bends
_CURVED = 6.0
_REPEATS = 24
NO_LIMITS = (-float(np.finfo(float).max), float(np.finfo(float).max))
_HALF_FLOAT = 3e4  # float16 overflows at 65504


@dataclass(frozen=True)
class AnswerModel:
    """What the answers do to the function's values.

    kind: exact, decimals (rounded to `decimals` places), float32, float16, bfloat16, tolerance (a fixed error
    up to `tau`), noise (fresh errors of standard deviation `sigma`), labels (one of two values), flipped
    labels (each wrong with probability `flip`), constant (no row moves the answer), or unsteady (the same row
    is answered differently as time goes on, which no noise does).
    clip: (lowest, highest) answer ever given, when that is a limit; the largest float where only the other
    side has one.
    middle: between the two labels.
    evidence: what was seen. queries: what seeing it cost.

    >>> AnswerModel("decimals", decimals=2, evidence="36 answers are whole multiples of 0.01",
    ...     queries=40).name
    'decimals'
    """

    kind: str
    evidence: str
    queries: int
    decimals: int | None = None
    tau: float = 0.0
    sigma: float = 0.0
    flip: float = 0.0
    clip: tuple[float, float] | None = None
    middle: float = 0.5

    @property
    def name(self) -> str:
        """The kind, with 'clipped' in front where a limit was seen."""
        return (
            self.kind if self.clip is None else "clipped" if self.kind == "exact" else f"clipped {self.kind}"
        )

    @property
    def exact(self) -> bool:
        """Whether answers are the function's values in float64."""
        return self.kind in ("exact", "constant") and self.clip is None


@dataclass(frozen=True)
class Finding:
    """Something found out about the target on the way: what it is about, what was found, what was seen, and
    what that cost.

    >>> Finding("answers", "exact", "full float64 answers on a line", 3).value
    'exact'
    """

    subject: str
    value: str
    evidence: str
    queries: int


def first_look(ledger: Ledger, rng: np.random.Generator) -> Finding | None:
    """A first look: do answers use all float64 digits, on a line along a ray (three queries), or else on
    short segments (thirteen)?

    No proof, and no refutation of a curved function. None: a full identification is needed.

    >>> import unsoftmax
    >>> first_look(Ledger(unsoftmax.as_oracle("demo:single-head?d=4")), np.random.default_rng(0)).queries
    3
    """
    size = 1.0 if ledger.input_bound is None else min(1.0, ledger.input_bound / 32)
    x = _rows(rng, 1, ledger.width)
    with ledger.phase(IDENTIFY):
        near, middle, far = ledger.ask(np.concatenate([x, 2.0 * x, 32.0 * x])[:, None] * size)
    largest = float(max(abs(near), abs(middle), abs(far)))
    bend = abs(float((far - middle) - 30.0 * (middle - near)))
    if 0.0 < largest < _CANCELS * 32.0 * size:
        return Finding("answers", "exact", "three answers along a ray are rounding of values that cancel", 3)
    answers = np.array([near, middle, far])
    if largest == 0.0 or _decimals(answers) is not None or smallest_format(answers) is not None:
        return None
    if bend <= 1e-11 * largest:
        return Finding(
            "answers", "exact", "three answers along a ray use all float64 digits and lie on a line", 3
        )
    with ledger.phase(IDENTIFY):
        return _look_at_pieces(ledger, rng, size, 32.0 * size * x[0], float(far))


def _look_at_pieces(
    ledger: Ledger, rng: np.random.Generator, size: float, end: Array, answer: float
) -> Finding | None:
    """A piecewise linear function bends along a ray, but neither on short segments nor, unless it is clipped,
    does it come to a rest."""
    places = size * _rows(rng, 3, ledger.width)
    segments = (1.0 + 1e-4 * np.arange(3.0))[:, None, None] * places
    answers = _ask(ledger, np.vstack([segments.reshape(-1, ledger.width), 0.97 * end[None]]))
    before_end, on_segments = float(answers[-1]), answers[:-1].reshape(3, 3)
    bends, moves = (
        np.abs(np.diff(on_segments, 2, axis=0))[0],
        np.abs(np.diff(on_segments, axis=0)).min(axis=0),
    )
    straight = (bends <= _STRAIGHT * np.abs(on_segments).max()) & (
        moves > 1e3 * _STRAIGHT * np.abs(on_segments).max()
    )
    if (
        straight.sum() < 2
        or before_end == answer
        or _decimals(answers) is not None
        or smallest_format(answers) is not None
    ):
        return None
    ledger.known[BENDS] = True
    return Finding(
        "answers", "exact", "answers use all float64 digits and lie on lines along short segments", 13
    )


def identify(ledger: Ledger, rng: np.random.Generator) -> AnswerModel:
    """The answer model of an oracle, from 40 to 90 one-row queries (more where labels are flipped).

    >>> import unsoftmax
    >>> oracle = unsoftmax.Rounded(unsoftmax.as_oracle("demo:single-head?d=4"), 2)
    >>> found = identify(unsoftmax.Ledger(oracle), np.random.default_rng(0))
    >>> found.kind, found.decimals, found.queries
    ('decimals', 2, 40)
    """
    before = ledger.bill.total
    with ledger.phase(IDENTIFY):
        found = _identify(ledger, rng, before)
    return replace(found, queries=ledger.bill.total - before)


def _identify(ledger: Ledger, rng: np.random.Generator, before: int) -> AnswerModel:
    farthest = _FARTHEST if ledger.input_bound is None else ledger.input_bound
    size = min(1.0, farthest / 4)
    for _ in range(_SIZES):
        rows = size * _rows(rng, 6, ledger.width)
        thrice = np.stack([_ask(ledger, rows) for _ in range(3)])
        near = np.concatenate([thrice.ravel(), _ask(ledger, -rows), _ask(ledger, 3.7 * rows)])
        repeats = bool((thrice == thrice[0]).all())
        if (
            len(np.unique(near)) == 2
            and len(np.unique(np.concatenate([near, _ask(ledger, _TINY * rows)]))) > 3
        ):
            size *= 0.01  # two values that are limits: shorter rows have others
        elif len(np.unique(near)) > 1 or 30.0 * 4 * size > farthest:
            break
        else:
            size *= 30.0
    if len(np.unique(near)) == 1:
        return AnswerModel(
            "constant", f"every row up to a norm of {3.7 * size:.3g} is answered {near[0]:.6g}", 0
        )
    if (
        len(np.unique(near)) == 2
        and (found := _labels(ledger, rng, rows * (farthest / size), rows, near, repeats)) is not None
    ):
        return found
    precision = smallest_format(near) if repeats else None
    if precision == "float16":
        slope = float(np.abs(near).max()) / size
        farthest = min(farthest, max(size, _HALF_FLOAT / (3 * slope)))
    loudest = rows[int(np.abs(thrice.mean(axis=0)).argmax())]
    clip, straight = _limits(
        ledger, rows, loudest, size, farthest, None if repeats else thrice, _decimals(near) is not None
    )
    inside = near if clip is None else near[(near > clip[0]) & (near < clip[1])]
    if repeats and len(inside) >= 4:
        decimals = _decimals(inside)
        precision = smallest_format(inside)
        if precision is not None and np.abs(inside).max() > 2.0 ** (FloatFormat(precision).mantissa_bits + 1):
            decimals = None  # large numbers of a format are whole without being rounded
        if decimals == 0 or (decimals is not None and precision is None):
            step = 10.0**-decimals
            return AnswerModel(
                "decimals",
                f"{len(inside)} answers are whole multiples of {step:g}",
                0,
                decimals=decimals,
                tau=step / 2,
                clip=clip,
            )
        if precision is not None:
            return AnswerModel(precision, f"{len(inside)} answers are {precision} numbers", 0, clip=clip)
    if float(np.abs(near).max()) < _CANCELS * size:
        return AnswerModel(
            "exact", f"single rows are answered zero to {float(np.abs(near).max()):.1g}, which is rounding", 0
        )
    if not repeats:
        return _noise(ledger, rows, thrice, clip)
    deviations, level = _deviations(ledger, rng, size, straight, clip)
    if not len(deviations):
        return AnswerModel(
            "labels", "hardly an answer lies between the lowest and the highest one", 0, clip=clip
        )
    worst = float(np.ptp(deviations)) / 2  # the line's own error shifts all of them alike
    bends = (
        None
        if worst <= 32.0 * EPS * np.sqrt(ledger.width) * level
        else _Segments(ledger, 0.3 * size * _rows(rng, 3, ledger.width))
    )
    if bends is None or bends.straight(worst):
        text = (
            f"answers repeat, use all digits and lie on lines to {worst:.1g}"
            if clip is None
            else limits_in_words(clip)
        )
        return AnswerModel("exact", text, 0, clip=clip)
    rows = straight * _rows(rng, 3, ledger.width)
    far = 0.0 if clip is not None else _far_deviation(ledger, rng, rows)
    if (
        far > _CURVED * worst
    ):  # errors do not grow with the rows: the function itself bends, or its answers are coarse
        bends = _Segments(ledger, 0.99 * rows)
    if bends.moves and max(worst, far) > _CURVED * bends.largest:
        text = (
            f"{len(deviations)} answers repeat, but lie up to {bends.largest:.2g} off lines along short "
            "segments; along whole rays they bend"
        )
        return AnswerModel("tolerance", text, 0, tau=_COVER * bends.largest, clip=clip)
    text = f"{len(deviations)} answers repeat, but lie up to {worst:.2g} off a line"
    return AnswerModel("tolerance", text, 0, tau=_COVER * max(worst, far), clip=clip)


def _noise(ledger: Ledger, rows: Array, thrice: Array, clip: tuple[float, float] | None) -> AnswerModel:
    """Fresh errors, or a target whose answers change with time or with having been asked before?"""
    low, high = clip if clip is not None else (-np.inf, np.inf)
    inside = (thrice.min(axis=0) > low) & (thrice.max(axis=0) < high)
    if not inside.any():
        return AnswerModel(
            "labels", "hardly an answer lies between the lowest and the highest one", 0, clip=clip
        )
    row = int(np.flatnonzero(inside)[0])
    again = np.concatenate([_ask(ledger, rows[row : row + 1]) for _ in range(_REPEATS)])
    steps = np.diff(np.concatenate([thrice[:, row], again]))
    if (steps >= 0.0).all() or (steps <= 0.0).all():
        text = (
            f"a row asked {len(steps) + 1} times was answered {thrice[0, row]:.9g} at first and "
            f"{again[-1]:.9g} at last, never turning back"
        )
        return AnswerModel("unsteady", text, 0, clip=clip)
    apart = np.concatenate([(thrice - thrice.mean(axis=0))[:, inside].ravel(), again - again.mean()])
    sigma = float(np.sqrt(np.sum(apart**2) / (len(apart) - int(inside.sum()) - 1)))
    return AnswerModel(
        "noise",
        f"the same row is answered differently, with a standard deviation of {sigma:.2g}",
        0,
        sigma=sigma,
        clip=clip,
    )


def _labels(
    ledger: Ledger, rng: np.random.Generator, far: Array, rows: Array, near: Array, repeats: bool
) -> AnswerModel | None:
    """Two values near zero are labels when rows far away give no third one (coarse rounding would)."""
    values = np.unique(np.concatenate([near, _ask(ledger, far)]))
    if len(values) > 2:
        return None
    middle = float(values.mean())
    seen = f"every answer is {values[0]:g} or {values[1]:g}"
    sizes = np.sort(rng.uniform(0.5, 2.0, _SAME_RAY))
    labels = _ask(ledger, rows[:1] * sizes[:, None]) == values[1]
    turns = int(np.count_nonzero(np.diff(labels)))
    if repeats and turns == 0:
        return AnswerModel("labels", seen, 0, middle=middle)
    more = rng.uniform(0.5, 2.0, _MORE_ON_RAY)
    if repeats:
        more[:_SAME_RAY] = sizes
    again = _ask(ledger, rows[:1] * more[:, None]) == values[1]
    if repeats and bool((again[:_SAME_RAY] == labels).all()):
        return AnswerModel(
            "labels",
            f"{seen}, and along a ray the label turns {turns} times, at the same places when asked again",
            0,
            middle=middle,
        )
    flip = _flipped(np.append(labels, again)[np.argsort(np.append(sizes, more))])
    return AnswerModel(
        "flipped labels",
        f"{seen}, and the same ray is labelled both ways, {flip:.1%} of the time",
        0,
        flip=flip,
        middle=middle,
    )


def _flipped(labels: NDArray[np.bool_]) -> float:
    """The share of labels along a ray that are wrong, if the true one turns at most once."""
    before = np.concatenate([[0], np.cumsum(labels)])  # ones before each place where it could turn
    wrong = (
        before + (len(labels) - np.arange(len(labels) + 1)) - (before[-1] - before)
    )  # when it turns there from 0 to 1
    return float(min(wrong.min(), (len(labels) - wrong).min())) / len(labels)


def _limits(
    ledger: Ledger, rows: Array, row: Array, size: float, farthest: float, noisy: Array | None, on_grid: bool
) -> tuple[tuple[float, float] | None, float]:
    """The answers' lowest and highest value if growing rows end there, and the largest size at which they had
    not.

    A ray of a network may come to rest as well: then other rows go beyond.
    """
    sizes = np.unique(np.minimum(np.append(size * 10.0 ** np.arange(4), farthest), farthest))
    close = (
        len(sizes) < 2 or sizes[-1] < 5 * sizes[-2] * 0.99
        # too close to each other to show that answers do not grow; three equal ones do, unless they are
        # rounded
    )
    if close:
        sizes = np.unique(np.append(sizes, [0.7 * farthest, 0.85 * farthest]))
    up, down = (_ask(ledger, sign * sizes[:, None] * row / np.linalg.norm(row)) for sign in (1.0, -1.0))
    lowest, highest = float(min(up.min(), down.min())), float(max(up.max(), down.max()))
    spread = 0.0 if noisy is None else float(np.std(noisy - noisy.mean(axis=0)))
    margin = 30.0 * spread
    low, high = NO_LIMITS
    for path in (up, down):
        if (
            np.ptp(path[-3:] if close else path[-2:]) > 12.0 * spread
            or abs(path[-1]) <= margin
            or (close and (on_grid or noisy is not None))
        ):
            continue
        if path[-1] >= highest - margin:
            high = highest
        elif path[-1] <= lowest + margin:
            low = lowest
    if (low, high) != NO_LIMITS:
        elsewhere = _ask(ledger, farthest * rows / np.linalg.norm(rows, axis=1)[:, None])
        low = low if elsewhere.min() >= low - margin else NO_LIMITS[0]
        high = high if elsewhere.max() <= high + margin else NO_LIMITS[1]
    if (low, high) == NO_LIMITS:
        return None, float(sizes[-1])
    free = (np.minimum(up, down) > low + margin) & (np.maximum(up, down) < high - margin)
    return (low, high), float(sizes[free].max(initial=0.0))


def limits_in_words(limits: tuple[float, float]) -> str:
    """Where answers stop, of a side without a limit nothing.

    >>> limits_in_words((-2.0, 2.0)), limits_in_words((NO_LIMITS[0], 2.0))
    ('answers stop at -2 and 2', 'answers stop at 2')
    """
    return "answers stop at " + " and ".join(f"{limit:.6g}" for limit in limits if limit not in NO_LIMITS)


def _deviations(
    ledger: Ledger, rng: np.random.Generator, size: float, far: float, clip: tuple[float, float] | None
) -> tuple[Array, float]:
    """Answers to short rows against lines through the origin's answer and a far one, and the largest answer
    among the short ones."""
    low, high = clip if clip is not None else (-np.inf, np.inf)
    far = max(far, 1e-3 * size)
    for _ in range(8):
        rows = _rows(rng, 4, ledger.width)
        ends, origin = _ask(ledger, far * rows), float(_ask(ledger, np.zeros((1, ledger.width)))[0])
        inside = (ends > low) & (ends < high)
        if inside.sum() >= 2:
            break
        far *= 0.3
    rows, slopes = rows[inside], (ends[inside] - origin) / far
    parts = rng.uniform(0.1, 1.0, (len(rows), 7)) * min(size, 0.9 * far)
    answers = _ask(ledger, (parts[:, :, None] * rows[:, None]).reshape(-1, ledger.width)).reshape(parts.shape)
    deviations = (answers - origin - parts * slopes[:, None]).ravel()
    kept = ((answers > low) & (answers < high)).ravel()
    return deviations[kept], float(np.abs(answers).max(initial=0.0))


def _far_deviation(ledger: Ledger, rng: np.random.Generator, rows: Array) -> float:
    """How far answers along long rows lie off lines: coarse steps are not seen on rows whose whole answer is
    smaller."""
    ends, starts = _ask(ledger, rows), _ask(ledger, -rows)
    parts = rng.uniform(-0.6, 0.6, (3, 6))
    answers = _ask(ledger, (parts[:, :, None] * rows[:, None]).reshape(-1, ledger.width)).reshape(parts.shape)
    off = np.abs(answers - (ends + starts)[:, None] / 2 - parts * (ends - starts)[:, None] / 2)
    return float(off.max()) / 1.6 if float(off.max()) > 1e-12 * float(np.abs(ends).max()) else 0.0


class _Segments:
    """Answers along three short segments, where a function that is no line still is nearly one, and errors of
    answers still jump about.

    largest: how far they lie off lines. moves: whether they change all along the segments.
    """

    def __init__(self, ledger: Ledger, places: Array) -> None:
        steps = 1.0 + 1e-4 * np.arange(5.0)
        self._answers = _ask(ledger, (steps[:, None, None] * places).reshape(-1, ledger.width)).reshape(5, 3)
        line = np.column_stack([np.ones(5), np.arange(5.0)])
        off = self._answers - line @ np.linalg.lstsq(line, self._answers, rcond=None)[0]
        self.largest = float(np.abs(off).max())
        self.moves = bool((np.abs(np.diff(self._answers, axis=0)).min(axis=0) > 0.0).all())

    def straight(self, worst: float) -> bool:
        """Whether at least two of them are lines, against deviations of that size elsewhere."""
        bends, moves = (
            np.abs(np.diff(self._answers, 2, axis=0)).max(axis=0),
            np.abs(np.diff(self._answers, axis=0)).min(axis=0),
        )
        return int(((moves > 0.0) & (bends < 1e-3 * worst) & (bends < 0.05 * moves)).sum()) >= 2


def _decimals(answers: Array) -> int | None:
    """The smallest number of decimals that writes every answer, if there is one."""
    for places in range(_MOST_DECIMALS + 1):
        scaled = answers * 10.0**places
        if (np.abs(scaled - np.round(scaled)) <= 4.0 * EPS * np.maximum(1.0, np.abs(scaled))).all():
            return places if np.abs(scaled).max() < 0.01 / EPS else None
    return None


def _ask(ledger: Ledger, rows: Array) -> Array:
    return ledger.ask(rows[:, None])


def _rows(rng: np.random.Generator, n: int, width: int) -> Array:
    rows = rng.standard_normal((n, width))
    lengths = rng.uniform(
        0.7, 1.0, (n, 1)
    )  # a length of one would make round answers of round parameters where d = 1
    return np.asarray(rows * lengths / np.linalg.norm(rows, axis=1)[:, None])
