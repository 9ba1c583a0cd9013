"""Readouts v_h from saturated plateaus. Saturation is safe in short arithmetic: only the value path rounds,
and that is relative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.plateau_line import PlateauLine, find_switches, saturating_scale
from unsoftmax.learners.computed.two_row_queries import Baseline, TwoRowQueries, random_basis, sizes_of
from unsoftmax.outcomes import Unresolved

__all__ = ["Readouts", "read_readouts"]

_FIRST_LINES = 5  # a head whose switch hides under another on one line shows on the others
_MORE_LINES = 2  # after a line that could not be read
_TRIES = 6  # a cap: later tries add a few lines each to what the first showed
_END = 1.56  # just short of a right angle
_CURVATURE = 8.0  # noises by which opposite steps may miss the middle of a plateau


class _Unreadable(Exception):
    """This line's plateaus do not explain its steps; another may."""


@dataclass(frozen=True)
class Readouts:
    """v (H, d), or (H, d, m) of vector answers, and the expected length of an error of one of them: large
    where a plateau was narrow.
    """

    v: Array
    error: float


@dataclass(frozen=True)
class _Line:
    line: PlateauLine
    switches: Array
    noise: float

    @property
    def gap(self) -> float:
        """The narrowest plateau."""
        return (
            float(np.diff(np.concatenate([[-_END], self.switches, [_END]])).min())
            if len(self.switches)
            else 0.0
        )


def read_readouts(
    queries: TwoRowQueries, baseline: Baseline, rng: np.random.Generator, limit: float = np.inf
) -> Readouts:
    """All heads' readouts, from the line with the most steps that explains itself."""
    scale = saturating_scale(queries, baseline, rng, limit)
    tried: list[_Line] = []
    reasons: list[str] = []
    for attempt in range(_TRIES):
        for _ in range(_FIRST_LINES if attempt == 0 else _MORE_LINES):
            tried.append(_scan(queries, baseline, scale, rng))
            most = _steps(tried, baseline)
            best = [one for one in tried if len(one.switches) == most]
            if len(best) >= 2 and max(one.gap for one in best) > 0.3 / (most + 1):
                break
        most = _steps(tried, baseline)
        tried.sort(key=lambda one: (len(one.switches) != most, -len(one.switches), -one.gap))
        chosen = tried.pop(0)
        if not len(chosen.switches):
            raise Unresolved(
                "no head switches along any line of asking rows: all scores are constant, or readouts cancel"
            )
        if len(chosen.switches) == 1:  # one head: single rows tell its readout
            return Readouts(baseline.v_sum[None], float(np.sqrt(queries.width)) * baseline.unit_rounding)
        try:
            return _read(chosen, baseline, rng)
        except _Unreadable as reason:
            reasons.append(str(reason))
    raise Unresolved(
        "the plateaus of saturated scores do not add up to the readouts of single heads, as when two heads "
        f"have nearly equal or opposite readouts ({'; '.join(dict.fromkeys(reasons))})"
    )


def _steps(lines: list[_Line], baseline: Baseline) -> int:
    """How many heads switch: the most on any line, as two may switch together. Coarse arithmetic shows steps
    that are none, so there the most that two lines agree on.
    """
    counts = [len(one.switches) for one in lines]
    agreed = [count for count in counts if counts.count(count) > 1]
    return max(agreed if baseline.coarse and agreed else counts)


def _scan(queries: TwoRowQueries, baseline: Baseline, scale: float, rng: np.random.Generator) -> _Line:
    line = PlateauLine.random(queries, baseline, scale, rng)
    noise = line.noise(rng)
    tolerance = max(12.0 * noise, 8.0 * baseline.noise * baseline.largest)
    found = find_switches(line, tolerance)
    return _Line(line, np.array([(low + high) / 2 for low, high in found]), noise)


def _read(found: _Line, baseline: Baseline, rng: np.random.Generator) -> Readouts:
    """Slopes G_m = Σ_{h on} v_h of plateaus; neighbours differ by one ±v_h, and the sum of all is known."""
    edges = np.concatenate([[-_END], found.switches, [_END]])
    read = [_slope(found, angle, rng) for angle in (edges[1:] + edges[:-1]) / 2]
    slopes, errors = np.array([slope.ravel() for slope, _ in read]), np.array([error for _, error in read])
    jumps = np.diff(slopes, axis=0)
    coefficients = np.linalg.lstsq(jumps.T, -slopes[0], rcond=None)[0]
    on = np.round(coefficients)  # 1 for heads that are on at first, and so leave
    v_sum = baseline.v_sum.ravel()
    missing = float(np.linalg.norm((1 - 2 * on) @ jumps - v_sum) / np.linalg.norm(v_sum))
    if not np.isin(on, (0.0, 1.0)).all() or np.abs(coefficients - on).max() > 0.3:
        raise _Unreadable("the first plateau is not a sum of the steps")
    if missing > 4.0 * min(0.4, 1e4 * baseline.noise):
        raise _Unreadable(f"the steps sum to the readout of a single row only up to {missing:.1g}")
    states = [on.astype(bool)]
    for m in range(len(jumps)):
        states.append(states[-1] ^ (np.arange(len(jumps)) == m))
    design = np.concatenate([np.array(states, dtype=float), np.full((1, len(jumps)), 3.0)])
    v = np.linalg.lstsq(design, np.concatenate([slopes, 3.0 * v_sum[None]]), rcond=None)[0]
    inverse = np.linalg.pinv(design)[:, :-1]
    v = v.reshape(len(jumps), *baseline.v_sum.shape)
    return Readouts(np.asarray(v), float(np.sqrt((inverse**2 @ errors**2).max())))


def _slope(found: _Line, angle: float, rng: np.random.Generator) -> tuple[Array, float]:
    """The gradient of the level in a, and the expected length of its error, by opposite steps that are
    shortened until they stay on the plateau.
    """
    line = found.line
    d = len(line.a)
    steps = random_basis(rng, d)
    sent, levels = line.ask(angle + np.array([0.0, 1e-5]), np.stack([line.a] * 2))
    rows, values = [sent], [levels]
    middle, length, left = levels.mean(axis=0), 0.6 / max(1, len(found.switches)), np.arange(d)
    for _ in range(6):
        n = len(left)
        sent, levels = line.ask(
            np.full(2 * n, angle),
            np.concatenate([line.a + length * steps[left], line.a - length * steps[left]]),
        )
        flat = sizes_of(levels[:n] + levels[n:] - 2.0 * middle) < _CURVATURE * found.noise
        kept = np.concatenate([flat, flat])
        rows.append(sent[kept])
        values.append(levels[kept])
        left, length = left[~flat], length / 3.5
        if not len(left):
            break
    else:
        raise _Unreadable("a plateau is too narrow")
    design, wanted = np.concatenate(rows), np.concatenate(values)
    slope = np.linalg.lstsq(design, wanted, rcond=None)[0]
    unexplained = rms(sizes_of(design @ slope - wanted))
    if unexplained > 8.0 * found.noise:
        raise _Unreadable("a plateau is not linear")
    strengths = np.linalg.svd(design, compute_uv=False)
    return np.asarray(slope), max(unexplained, 0.5 * found.noise) * float(np.sqrt((1.0 / strengths**2).sum()))
