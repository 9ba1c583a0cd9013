"""Neurons whose kinks lie so close together that they were taken for one: rows around every kink show them,
and the neuron is split.

One neuron in the place of two is right everywhere but between their kinks, where hardly any random row lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["told_apart"]

_NEAREST = 2.0**-16  # distance of rows from the kink, over their size; float32 itself ends at 2^-24
_DISTANCES = 2 * 17  # both sides of a kink, every distance half of the one before
# deviations around a kink over the rounding: at most 8 for 190 right networks of widths 1 to 8, and 1700 or
# more where two neurons were taken for one
_CROWDED = 60.0
_ROUNDS = 6  # a cap: every round asks around the folds that the last one moved
_MOST_SPLIT, _STARTS = 3, 3  # neurons that are split, one at a time, in every round, and starts of each
_GAUSSIAN = 1.4826  # standard deviation over the median of sizes
_FIT = RefinementOptions(iterations=30, damping=1e-3, least_damping=1e-9, improvement=1e-2, dense_limit=6000)


def told_apart(
    ask: Callable[[Array], Array], fit: NetworkFit, inner: Array, rng: np.random.Generator
) -> tuple[NetworkFit, Array]:
    """(fit, inner) that explain rows around every kink as well: inner (J, d + 1) with neurons split where
    that is needed. Raises Unresolved where it does not help."""
    sizes = _sizes(fit, inner, fit.points)
    rounding = _GAUSSIAN * float(np.median(np.abs(fit.residual(inner)) / sizes))
    usual = float(np.median(sizes))
    for _ in range(_ROUNDS):
        rows, offsets = _rows_around(inner, rng)
        rows = FloatFormat.FLOAT32.store(rows)
        answers = ask(rows.reshape(-1, rows.shape[2])).reshape(offsets.shape)
        predicted = fit.network(inner)(rows.reshape(-1, rows.shape[2])).reshape(offsets.shape)
        # short rows are known as well as usual ones, and no better
        off = np.abs(answers - predicted) / (rounding * np.maximum(_sizes(fit, inner, rows), usual))
        worst = off.max(axis=1)
        if not (worst > _CROWDED).any():
            return fit, inner
        crowded = np.argsort(-worst)[: int((worst > _CROWDED).sum())]
        fit = replace(
            fit,
            points=np.vstack([fit.points, rows[crowded].reshape(-1, rows.shape[2])]),
            answers=np.vstack([fit.answers, answers[crowded].reshape(-1, 1)]),
        )
        starts = [inner]
        for j in crowded[:_MOST_SPLIT]:
            apart = abs(float(offsets[j, off[j].argmax()]))
            starts += [_split(inner, int(j), apart, rng) for _ in range(_STARTS)]
        inner = min((refine(fit, start, _FIT) for start in starts), key=lambda found: found.rms[-1]).state
    raise Unresolved(
        f"the kinks of {len(crowded)} of {len(inner)} neurons lie so close to others that answers around "
        f"them deviate by {worst.max():.1g} times their rounding"
    )


def _rows_around(inner: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """(J, n, d) rows, and their signed distances from the kink (J, n)."""
    w, b = _unit(inner)
    rows = rng.standard_normal((len(inner), _DISTANCES, w.shape[1]))
    rows -= ((rows * w[:, None]).sum(axis=2) + b[:, None])[:, :, None] * w[:, None]
    steps = np.geomspace(1.0, _NEAREST, _DISTANCES // 2)
    offsets = np.maximum(1.0, np.abs(b))[:, None] * np.concatenate([steps, -steps])
    return rows + offsets[:, :, None] * w[:, None], offsets


def _unit(inner: Array) -> tuple[Array, Array]:
    lengths = np.linalg.norm(inner[:, :-1], axis=1)
    return inner[:, :-1] / lengths[:, None], inner[:, -1] / lengths


def _sizes(fit: NetworkFit, inner: Array, rows: Array) -> Array:
    """The size of what neurons add up at rows (…, d), whose rounding is proportional to it."""
    outer = np.abs(fit.weights(inner)[: len(inner), 0])
    return np.asarray((np.abs(rows) @ np.abs(inner[:, :-1]).T + np.abs(inner[:, -1])) @ outer)


def _split(inner: Array, j: int, apart: float, rng: np.random.Generator) -> Array:
    """With two neurons in the place of one, tilted and moved to either side by about this distance."""
    (w,), (b,) = _unit(inner[j : j + 1])
    tilt = rng.standard_normal(len(w))
    tilt -= (tilt @ w) * w
    change = np.append(tilt, rng.choice([-1.0, 1.0])) * apart * rng.uniform(0.3, 1.0)
    both = np.append(w, b) + np.stack([change, -change])
    return np.vstack([np.delete(inner, j, axis=0), both])
