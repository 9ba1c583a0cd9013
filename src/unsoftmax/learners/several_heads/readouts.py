"""The readouts v_h: with only head h on, the response is (a + step)·v_h, whatever its scores."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.several_heads.head_switches import HeadSwitches
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.isolating_rows import CrowdedIsolation, Isolation

__all__ = ["read_crowded_values", "read_head_values"]

_TRIES = 10  # at a quarter each: steps fall by a million
_REACH = 0.8  # of the step at which the usual score of another head moves by one


def read_head_values(
    respond: Responses, stairs: HeadSwitches, isolation: Isolation, left: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(V, flat): V (H, d), and the readout of a head with W = 0 (zeros when there is none). It takes d
    queries per head.

    left: orthonormal (d, d) with the base direction first. Every direction is checked: the heads' responses
    add up to a·v̄.
    """
    a, d, H = stairs.circle.a, respond.width, len(stairs.steps)
    hidden = stairs.flat != 0.0
    points = np.array(
        [isolation.only(h, rng) for h in range(H)] + ([isolation.only(-1, rng)] if hidden else [])
    )
    size = float(np.linalg.norm(a))
    longest = float((isolation.sizes.max() * np.linalg.norm(points, axis=1)).max())
    step = _REACH * np.sqrt(d) * size / longest * 4
    foot = respond(a, points)
    alone = foot[:H] - (foot[H] if hidden else 0.0)
    plateau = max(1e-12, 64 * respond.rounding)
    if np.any(np.abs(alone - stairs.heights) > 1e-3 * np.abs(stairs.heights) + 1e3 * plateau * stairs.size):
        raise Restart("a head alone does not move the answer by the height of its step")
    steps = np.full(d - 1, step)
    gradient = np.full((d - 1, len(points)), np.nan)
    todo = np.arange(d - 1)
    allowed = max(1e-11, 1e3 * respond.rounding)
    for _ in range(_TRIES):
        if len(todo) == 0:
            break
        moved = a + steps[todo, None] * left[:, 1 + todo].T
        found = respond(np.repeat(moved, len(points), axis=0), np.tile(points, (len(todo), 1))).reshape(
            len(todo), -1
        )
        gradient[todo] = (found - foot) / steps[todo, None]
        total = found.sum(axis=1) if not hidden else found[:, :H].sum(axis=1) + (2 - H) * found[:, H]
        wrong = np.abs(total - moved @ respond.v) > allowed * (np.abs(found).sum(axis=1) + stairs.size)
        todo = todo[wrong]
        steps[todo] /= 4
    else:
        if len(todo):
            raise Restart("the heads' readouts do not add up to that of one row")
    readouts = np.outer(foot / size, left[:, 0]) + gradient.T @ left[:, 1:].T
    if not hidden:
        return readouts, np.zeros(d)
    return readouts[:H] - readouts[H], 2 * readouts[H]


def read_crowded_values(
    respond: Responses,
    stairs: HeadSwitches,
    isolation: CrowdedIsolation,
    left: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """The same for more heads than columns: each head is switched on and off while all others stay as they
    are; 2d queries per head."""
    a, d, H = stairs.circle.a, respond.width, len(stairs.steps)
    size = float(np.linalg.norm(a))
    pairs = [isolation.switch(h, rng) for h in range(H)]
    on, off = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    both = np.concatenate([on, off])
    foot = np.subtract(*np.split(respond(a, both), 2))
    plateau = max(1e-12, 64 * respond.rounding)
    if np.any(np.abs(foot - stairs.heights) > 1e-3 * np.abs(stairs.heights) + 1e3 * plateau * stairs.size):
        raise Restart("a head switched on and off does not move the answer by the height of its step")
    drift = np.array([_REACH * np.sqrt(d) * size / (isolation.sizes.max() * np.linalg.norm(b)) for b in on])
    steps = np.full(d - 1, float(drift.min()))
    moved = a + steps[:, None] * left[:, 1:].T
    found = respond(np.repeat(moved, 2 * H, axis=0), np.tile(both, (d - 1, 1))).reshape(d - 1, 2 * H)
    gradient = (found[:, :H] - found[:, H:] - foot) / steps[:, None]
    readouts = np.outer(foot / size, left[:, 0]) + gradient.T @ left[:, 1:].T
    rest = respond.v - readouts.sum(axis=0)
    if stairs.flat == 0.0 and float(np.linalg.norm(rest)) > 1e-6 * float(np.linalg.norm(readouts)):
        raise Restart("the heads' readouts do not add up to that of one row")
    return readouts, rest if stairs.flat != 0.0 else np.zeros(d)
