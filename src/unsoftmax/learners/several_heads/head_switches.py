"""Every head is a step: the asking row runs over a half circle, and each head switches exactly once.

With a fixed and b = λ·point(θ), head h has the score λ·slope·sin(θ - angle). For large λ it is on or off, and
F(θ) is a staircase whose step of head h has the height a·v_h. Bisection finds the steps; inside a step the
logit must be a straight line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.arrays import Array, logit
from unsoftmax.learners.several_heads.attempt import Restart, SharedStep
from unsoftmax.meters.several_heads.excess_answers import Responses

__all__ = ["Circle", "HeadSwitches", "Step", "draw_circle", "find_saturation", "find_staircase"]

_BASE = 2.0**16  # size of a: large, so that the answer's rounding of b does not matter
_LARGEST_LEVEL = 20  # log2 of the largest b
_SMALLEST_LEVEL = -76  # 2^-76 of the base row: scores of any head that shows are even there
# angles apart by 2^-30 switch together as far as float64 tells
_RESOLUTIONS = tuple(2.0**e for e in (10, 15, 20, 25, 30))
_MOST_QUERIES = 30_000  # for one circle: a limit on what is paid; a thousand heads at 26 each stay below
_STEP_POINTS = np.array([-4.0, -2.0, 0.0, 2.0, 4.0])  # scores at which a step's shape is tested


@dataclass(frozen=True)
class Circle:
    """The base row a, and the plane of asking directions."""

    a: Array
    p: Array
    q: Array

    def points(self, angles: Array) -> Array:
        """Unit asking directions at the angles, as rows."""
        return np.asarray(np.cos(angles)[:, None] * self.p + np.sin(angles)[:, None] * self.q)


@dataclass(frozen=True)
class Step:
    """One head: it has the score λ·slope·sin(θ - angle) on this circle, and adds `height` = a·v_h when it is
    on."""

    angle: float
    slope: float
    height: float


@dataclass(frozen=True)
class HeadSwitches:
    """All steps of one circle. saturation: λ from which F(θ = 0) does not change. size: largest |F|. flat:
    height of a head with W = 0."""

    circle: Circle
    steps: list[Step]
    saturation: float
    size: float
    flat: float
    # (angle, F) as asked, for pictures
    profile: list[tuple[float, float]] = field(default_factory=list, repr=False)

    @property
    def angles(self) -> Array:
        return np.array([step.angle for step in self.steps])

    @property
    def slopes(self) -> Array:
        return np.array([step.slope for step in self.steps])

    @property
    def heights(self) -> Array:
        return np.array([step.height for step in self.steps])


def draw_circle(respond: Responses, rng: np.random.Generator) -> Circle:
    """A random base row and plane; with a query bias both directions keep some of the last coordinate."""
    d, n = respond.width, respond.columns
    bound = respond.ledger.input_bound
    a = rng.standard_normal(d)
    a *= (_BASE if bound is None else min(_BASE, bound / 4)) / np.linalg.norm(a)
    if n == 1:  # a line, for those who only look along p
        return Circle(a, np.ones(1), np.zeros(1))
    plane = rng.standard_normal((n, 2))
    if not respond.biased or n == 2:
        p, q = np.linalg.qr(plane)[0].T
        return Circle(a, p, q)
    plane[-1] = 0.0
    g = np.linalg.qr(plane)[0]
    last = np.zeros(n)
    last[-1] = 1.0
    return Circle(
        a, 0.8 * g[:, 0] + 0.6 * last, 0.9 * g[:, 1] + np.sqrt(0.19) * (-0.6 * g[:, 0] + 0.8 * last)
    )


def find_saturation(respond: Responses, circle: Circle, first: int = 1) -> tuple[float, float]:
    """(λ, size): the smallest power of four from which F(λp) stays as it is, and the size of F; about 14
    queries. first: copies of a + b.

    Raises `SharedStep` where nothing moves F, and `Restart` where the direction is unlucky.
    """
    bound = respond.ledger.input_bound
    top = _LARGEST_LEVEL if bound is None else int(np.floor(np.log2(bound / 4)))
    values: dict[int, float] = {}

    def look(levels: list[int]) -> None:
        fresh = [level for level in levels if level not in values]
        if fresh:
            values.update(
                zip(
                    fresh,
                    respond(
                        circle.a, 2.0 ** np.array(fresh, dtype=float)[:, None] * circle.p, first
                    ).tolist(),
                    strict=True,
                )
            )

    coarse = list(range(top - 4, _SMALLEST_LEVEL, -8))
    look([top, top - 2, *coarse])
    reference = float(np.median([values[top], values[top - 2], values[top - 4]]))
    total = abs(float(circle.a @ respond.v))
    largest = max(abs(values[top]), total)
    clear = [
        level for level in values if float(respond.blur(circle.a, 2.0**level * circle.p)[0]) <= 1e-3 * largest
    ]
    size = max((abs(values[level]) for level in clear), default=largest) + total
    if size == 0.0:
        raise Restart("the base row does not move the answer")

    def flat(level: int) -> bool:
        b = 2.0**level * circle.p
        return bool(
            abs(values[level] - reference)
            <= _plateau(respond) * size + 30 * float(respond.blur(circle.a, b)[0])
        )

    moving = next((level for level in coarse if not flat(level)), None)
    if not (flat(top) and flat(top - 2) and flat(top - 4)) or moving == top - 4:
        raise Restart("the scores do not saturate for the largest rows that may be sent")
    if moving is None:
        # as beside heads W and -W with one readout, of which always one half is on
        raise SharedStep("nothing changes with the size of the asking row")
    look([moving + 2, moving + 4, moving + 6])
    level = moving + 8
    while level - 2 > moving and flat(level - 2):
        level -= 2
    return 2.0**level, size


def find_staircase(respond: Responses, circle: Circle) -> HeadSwitches:
    """All steps, each tested for its shape; finer where two steps overlap.

    Raises `SharedStep` when a step has no shape of one head however fine the look, and `Restart` when the
    circle is unlucky.
    """
    if respond.columns == 1:
        raise Restart("one column has no circle of asking rows")
    saturation, size = find_saturation(respond, circle)
    brackets: list[_Bracket] = []
    before: tuple[int, float] | None = None
    for resolution in _RESOLUTIONS:
        look = _Look(respond, circle, saturation * resolution, size, 8.0 / resolution)
        brackets = look.bisect(brackets)
        try:
            return look.measure(brackets, saturation)
        except _Unclear as unclear:
            now = (len(brackets), unclear.deviation)
            if (
                before is not None
                and now[1] > 1e-3
                and now[0] == before[0]
                and abs(now[1] - before[1]) < 0.05 * now[1]
            ):
                raise SharedStep(
                    f"a step of the staircase has the shape of several heads at every resolution ({unclear})"
                ) from None
            before = now
    raise SharedStep("the steps of the staircase cannot be told apart")


@dataclass(frozen=True)
class _Bracket:
    left: float
    right: float
    below: float
    above: float


class _Unclear(Exception):
    def __init__(self, reason: str, deviation: float = 0.0) -> None:
        super().__init__(reason)
        self.deviation = deviation


def _plateau(respond: Responses) -> float:
    """Relative tolerance for two answers on one plateau."""
    return max(1e-12, 64 * respond.rounding)


class _Look:
    """The circle at one size λ of the asking row."""

    def __init__(self, respond: Responses, circle: Circle, scale: float, size: float, narrow: float) -> None:
        self.respond = respond
        self.circle = circle
        self.scale = scale
        self.size = size
        self.narrow = narrow
        self.total = float(circle.a @ respond.v)
        self.profile: list[tuple[float, float]] = []
        self.start = float(self.ask(np.zeros(1))[0])

    def ask(self, angles: Array) -> Array:
        values = self.respond(self.circle.a, self.scale * self.circle.points(angles))
        self.profile += list(zip(angles.tolist(), values.tolist(), strict=True))
        return values

    def bisect(self, known: list[_Bracket]) -> list[_Bracket]:
        """Brackets narrower than `narrow`, one a step; `known` ones of a coarser look are looked at again."""
        edges = sorted({0.0, np.pi} | {edge for b in known for edge in (b.left, b.right)})
        inner = np.array([edge for edge in edges if 0.0 < edge < np.pi])
        values = {
            0.0: self.start,
            np.pi: self.total - self.start,
            **dict(zip(inner.tolist(), self.ask(inner).tolist(), strict=True)),
        }
        open_ = [_Bracket(x, y, values[x], values[y]) for x, y in itertools.pairwise(edges)]
        tolerance = 4 * (
            _plateau(self.respond) * self.size
            + 4
            * float(self.respond.blur(self.circle.a, self.scale * self.circle.q)[0])
            * (not self.respond.biased)
        )
        leaves: list[_Bracket] = []
        paid = 0
        while open_:
            open_ = [b for b in open_ if abs(b.below - b.above) > tolerance]
            leaves += [b for b in open_ if b.right - b.left <= self.narrow]
            open_ = [b for b in open_ if b.right - b.left > self.narrow]
            middles = np.array([(b.left + b.right) / 2 for b in open_])
            paid += len(middles)
            if paid > _MOST_QUERIES:
                raise Restart(f"the staircase has no plateaus ({paid} queries)")
            found = self.ask(middles).tolist()
            open_ = [
                half
                for b, m, f in zip(open_, middles.tolist(), found, strict=True)
                for half in (_Bracket(b.left, m, b.below, f), _Bracket(m, b.right, f, b.above))
            ]
        leaves.sort(key=lambda b: b.left)
        joined: list[_Bracket] = []
        for leaf in leaves:
            if joined and leaf.left - joined[-1].right < 1e-3 * self.narrow:
                joined[-1] = _Bracket(joined[-1].left, leaf.right, joined[-1].below, leaf.above)
            else:
                joined.append(leaf)
        if not joined:
            raise Restart("the answers do not depend on the asking row")
        return joined

    def measure(self, brackets: list[_Bracket], saturation: float) -> HeadSwitches:
        """Angle, slope, height and sign of every step, or `_Unclear`."""
        below, jump = np.array([b.below for b in brackets]), np.array([b.above - b.below for b in brackets])
        if not jump.all():
            raise Restart("steps that were joined cancel")

        def fraction(angles: Array, which: Array) -> Array:
            return np.asarray((self.ask(angles[which]) - below[which]) / jump[which])

        angles, widths = self._hit(brackets, fraction)
        slopes, angles = self._slopes(angles, widths, fraction)
        spread = angles[:, None] + _STEP_POINTS / slopes[:, None]
        shape = (self.ask(spread.ravel()).reshape(spread.shape) - below[:, None]) / jump[:, None]
        if np.any(shape <= 1e-4) or np.any(shape >= 1 - 1e-4):
            raise _Unclear("a step is wider on one side")
        scores = logit(shape)
        gain, centre = (scores[:, 3] - scores[:, 1]) / 4, (scores[:, 3] + scores[:, 1]) / 2
        deviation = np.abs(scores - (centre[:, None] + gain[:, None] * _STEP_POINTS)).max(axis=1)
        noise = 240 * self.respond.rounding * self.size / np.abs(jump) + 120 * 1e-16 * np.abs(slopes)
        allowed = np.maximum(1e-9, 20 * noise)
        if self.respond.rounding < 1e-12:
            allowed = np.minimum(allowed, 1e-3)
        if np.any(deviation > allowed):
            raise _Unclear(f"its logit bends by {deviation.max():.2g}", float(deviation.max()))
        if np.any(gain <= 0):
            raise _Unclear("a step does not rise evenly")
        slopes = slopes * gain
        angles = angles - centre / slopes
        points = self.scale * self.circle.points(angles)
        # where a second copy of a+b moves nothing but a head with W = 0
        plateau = self.scale * self.circle.points(np.zeros(1))
        doubled = self.respond(self.circle.a, np.concatenate([points, plateau]), first=2)
        rises = (doubled[:-1] - self.respond(self.circle.a, points) - (doubled[-1] - self.start)) / jump > 0
        signs = np.where(rises, 1.0, -1.0)
        steps = [
            Step(float(angle), float(sign * slope / self.scale), float(sign * height))
            for angle, slope, height, sign in zip(angles, slopes, jump, signs, strict=True)
        ]
        flat = self.total - sum(step.height for step in steps)
        on = sum(step.height for step in steps if step.slope * np.sin(-step.angle) > 0)
        if abs(flat) < 1e3 * _plateau(self.respond) * self.size:
            flat = 0.0
        if abs(self.start - on - flat / 2) > 1e3 * _plateau(self.respond) * self.size:
            raise _Unclear("the steps that are on do not add up to the answer")
        return HeadSwitches(self.circle, steps, saturation, self.size, flat, self.profile)

    def _hit(
        self, brackets: list[_Bracket], fraction: Callable[[Array, Array], Array]
    ) -> tuple[Array, Array]:
        """A point strictly inside every step, by bisection of its bracket."""
        low, high = np.array([b.left for b in brackets]), np.array([b.right for b in brackets])
        middle = (low + high) / 2
        done = np.zeros(len(brackets), dtype=bool)
        for _ in range(60):
            middle = np.where(done, middle, (low + high) / 2)
            part = np.full(len(brackets), 0.5)
            part[~done] = fraction(middle, ~done)
            done |= (part > 0.02) & (part < 0.98)
            if done.all():
                return middle, high - low
            low, high = (
                np.where(~done & (part <= 0.02), middle, low),
                np.where(~done & (part >= 0.98), middle, high),
            )
            if np.any((high - low < 1e-15) & ~done):
                break
        raise _Unclear("a step has no inside")

    def _slopes(
        self, angles: Array, widths: Array, fraction: Callable[[Array, Array], Array]
    ) -> tuple[Array, Array]:
        """Slope of the logit in every step, and the angle where it is zero."""
        everywhere = np.ones(len(angles), dtype=bool)
        here = logit(np.clip(fraction(angles, everywhere), 1e-6, 1 - 1e-6))
        move = widths / 50
        slopes = np.zeros(len(angles))
        for attempt in range(12):
            there = fraction(angles + move, everywhere)
            inside = (there > 0.005) & (there < 0.995)
            change = logit(np.clip(there, 1e-6, 1 - 1e-6)) - here
            slopes = np.where(inside, change / move, slopes)
            if inside.all() and attempt > 0 and np.all(np.abs(change) > 0.2):
                break
            move = np.where(inside, np.where(np.abs(change) < 0.2, move * 4, move), move / 4)
        if np.any(slopes <= 0):
            raise _Unclear("a step does not rise evenly")
        return slopes, angles - here / slopes
