"""One attempt: staircase, rows, isolation, readouts, and then every head's matrix side by side."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.query_bias import bias_alone
from unsoftmax.learners.several_heads.attempt import TooClose
from unsoftmax.learners.several_heads.correct_matrices import (
    correct_directions,
    correct_matrix,
    correct_readouts,
    correct_scales,
    matrix_error,
    readout_error,
)
from unsoftmax.learners.several_heads.head_switches import HeadSwitches, draw_circle, find_staircase
from unsoftmax.learners.several_heads.readouts import read_crowded_values, read_head_values
from unsoftmax.learners.several_heads.score_rows import measure_rows
from unsoftmax.learners.several_heads.separate_close_heads import MOST_ENTRIES, approach
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.isolated_head import Block, IsolatedHeadMeter, ask_together
from unsoftmax.meters.several_heads.isolating_rows import CrowdedIsolation, Isolation
from unsoftmax.meters.several_heads.other_heads import PredictedBackground, SaturatedBackground
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.stepwise import Request, explore, reassemble

__all__ = ["Heads", "isolate_heads", "solve_heads"]

_WORST_CONDITION = 1e7  # of the rows that hold heads apart: nine digits are left
_LARGEST_LEAK = 1e-4  # of a response; beyond, the others move the answer too much to be corrected for
_NO_LEAK = 256  # roundings of an answer, which carries at least as many of its own
_LEAK_ROUNDS = 6  # a correction a round; one that changes nothing ends them
_SECOND_LOOKS = 3  # looks at every matrix; one that finds nothing ends them
_GOOD_ENOUGH = 4e-11  # relative error from which a second look is not worth its queries
_LOST = 1e-4  # error of a matrix that further looks do not mend, when ...
_PARALLEL = 1e3  # ... the heads' rows are as ill conditioned as this
_ALIKE = 0.7  # distance of two unit matrices; of random ones it is about 1.4
_TELLS = 0.1  # of that distance: a larger error leaves pairs on which one head alone answers to chance
_RANK = 1e-11  # of the largest singular value: errors of W are 1e-14 to 1e-11


@dataclass(frozen=True)
class Heads:
    """Matrices [W w0/unit] (d, columns), readouts (H, d), ranks (None: full), and a head without scores."""

    matrices: list[Array]
    readouts: Array
    ranks: list[int | None]
    flat: Array

    def model(self, respond: Responses) -> MultiHead:
        """As a model, with W as factors where its rank is known to be low."""
        d = respond.width
        heads = []
        for matrix, v, rank in zip(self.matrices, self.readouts, self.ranks, strict=True):
            w0 = matrix[:, d] * respond.unit if respond.biased else None
            if w0 is not None and bias_alone(matrix[:, :d], w0):
                rank = 0
            heads.append(SingleHead(_factors(matrix[:, :d], rank), v, w0))
        if self.flat.any():
            heads.append(SingleHead(np.zeros((d, d)), self.flat))
        return MultiHead(heads, respond.c)


@dataclass
class _Job:
    """A head under measurement: its meter, what its solver asked, and the solver itself."""

    meter: IsolatedHeadMeter
    solver: Generator[Request, Array, None]
    requests: list[Request] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def isolate_heads(
    respond: Responses, rng: np.random.Generator, tolerance: float
) -> tuple[Heads, HeadSwitches]:
    """All heads from one base row and one circle, or a `Restart`."""
    asker = respond.ledger
    respond.begin()
    with asker.phase("staircase"):
        stairs = find_staircase(respond, draw_circle(respond, rng))
    with asker.phase("rows"):
        rows = measure_rows(respond, stairs, rng)
    if respond.biased:
        ratio = np.sqrt(np.mean(rows[:, -1] ** 2) / np.mean(rows[:, :-1] ** 2))
        respond.measure_biases_in(float(2.0 ** np.round(np.log2(np.clip(ratio, 1e-6, 1e6)))))
        rows = rows / np.append(np.ones(respond.width), respond.unit)
    a = stairs.circle.a
    left = np.asfortranarray(_basis_from(a, rng))  # its columns are read one by one
    isolation = (
        Isolation(rows, respond.rounding, biased=respond.biased) if len(rows) <= respond.columns else None
    )
    if isolation is not None and isolation.condition <= _WORST_CONDITION:
        with asker.phase("head values"):
            readouts, flat = read_head_values(respond, stairs, isolation, left, rng)
        points = [isolation.points(h, rng) for h in range(len(rows))]
    else:
        crowd = CrowdedIsolation(rows, respond.rounding, biased=respond.biased)
        with asker.phase("head values"):
            readouts, flat = read_crowded_values(respond, stairs, crowd, left, rng)
        points = [crowd.points(h, rng) for h in range(len(rows))]
    respond.subtract(flat)
    heads = solve_heads(respond, a, left, rows, readouts, points, tolerance)
    with asker.phase("second look"):
        return _refine_heads(respond, heads, rows, a, rng), stairs


def solve_heads(
    respond: Responses,
    a: Array,
    left: Array,
    rows: Array,
    readouts: Array,
    points: list[Array],
    tolerance: float,
) -> Heads:
    """The matrices of all heads in common batches, then corrected for what leaks from the others."""
    H = len(rows)
    reach = [float((np.abs(rows @ p[0]) / np.linalg.norm(rows, axis=1)).min()) for p in points]
    jobs = []
    for h in range(H):
        others = np.arange(H) != h
        background = SaturatedBackground(a, readouts[others], rows[others] @ points[h].T > 0)
        meter = IsolatedHeadMeter(respond, a, readouts[h], points[h], reach[h], background, row=rows[h])
        jobs.append(_Job(meter, explore(left, len(points[h]), tolerance)))
    with respond.ledger.phase("scores"):
        _run_together(respond, jobs)
        matrices, ranks = _assemble(jobs, left, tolerance)
        matrices, ranks = _correct_leaks(respond, a, jobs, left, readouts, tolerance, (matrices, ranks))
    return Heads(matrices, readouts, ranks, respond.flat)


def _refine_heads(respond: Responses, heads: Heads, rows: Array, a: Array, rng: np.random.Generator) -> Heads:
    """Looks again at those heads alone whose error fresh pairs show: first along the rows that held the heads
    apart, then everywhere."""
    matrices, readouts, size = list(heads.matrices), heads.readouts, float(np.linalg.norm(a))
    good_enough = max(_GOOD_ENOUGH, 1e3 * respond.rounding)
    errors: list[float] = []
    if _too_close(respond, matrices, readouts, size, rng):
        if sum(matrix.size for matrix in matrices) > MOST_ENTRIES:
            raise TooClose(
                f"two of {len(matrices)} heads are so close that all would have to be solved together, too "
                f"many at width {respond.width}"
            )
        matrices = approach(respond, matrices, readouts, a, rows, rng)
    for look in range(_SECOND_LOOKS):
        if readout_error(respond, matrices, readouts, size, rng) > good_enough:
            readouts = correct_readouts(respond, matrices, readouts, size, rng)
        errors = [matrix_error(respond, matrices, readouts, h, size, rng) for h in range(len(matrices))]
        bad = [h for h in range(len(matrices)) if errors[h] > good_enough]
        for h in sorted(bad, key=lambda h: errors[h]):
            rank = heads.ranks[h] or respond.width
            if look == 0 and 4 * len(rows) < respond.columns:
                left = np.linalg.svd(matrices[h], full_matrices=False)[0][:, :rank]
                corrected = correct_directions(
                    respond, matrices, readouts, h, (left, np.linalg.qr(rows.T)[0]), size, rng
                )
            else:
                corrected = correct_matrix(respond, matrices, readouts, h, heads.ranks[h], size, rng)
            if corrected is not None:
                matrices[h] = corrected
        matrices, _ = correct_scales(respond, matrices, readouts, size, rng)
        if not bad:
            break
    if (
        errors[worst := int(np.argmax(errors))] > _LOST
        and np.linalg.cond(rows / np.linalg.norm(rows, axis=1)[:, None]) > _PARALLEL
    ):
        raise TooClose(
            f"head {worst + 1} of {len(matrices)} is so close to another one that its matrix is lost in "
            "rounding"
        )
    return Heads(matrices, readouts, heads.ranks, heads.flat)


def _too_close(
    respond: Responses, matrices: list[Array], readouts: Array, size: float, rng: np.random.Generator
) -> bool:
    """Whether two heads are so alike that what is known of them does not tell them apart well."""
    directions = np.array([matrix.ravel() / np.linalg.norm(matrix) for matrix in matrices])
    for h, direction in enumerate(directions):
        gap = float(np.linalg.norm(np.delete(directions, h, axis=0) - direction, axis=1).min(initial=np.inf))
        if gap < _ALIKE and matrix_error(respond, matrices, readouts, h, size, rng) > _TELLS * gap:
            return True
    return False


def _run_together(respond: Responses, jobs: list[_Job]) -> None:
    """All solvers in lockstep: what they ask next goes out in one batch."""
    wanted = [(job, next(job.solver)) for job in jobs]
    while wanted:
        for job, request in wanted:
            job.requests.append(request)
            job.blocks.append(job.meter.open(request.directions, request.points, request.sizes))
        ask_together(respond, [(job.meter, job.blocks[-1]) for job, _ in wanted])
        following = []
        for job, _ in wanted:
            values = job.meter.values(job.blocks[-1])
            if len(job.blocks) == 1 and len(values) > 1:
                typical = float(np.sqrt(np.mean(values[1:] ** 2)))
                if typical > 0:
                    job.meter.aim_at(0.8 / typical)
            try:
                following.append((job, job.solver.send(values)))
            except StopIteration:
                continue
        wanted = following


def _assemble(jobs: list[_Job], left: Array, tolerance: float) -> tuple[list[Array], list[int | None]]:
    matrices, ranks = [], []
    for job in jobs:
        answers = [job.meter.values(block) for block in job.blocks]
        C, rank = reassemble(left, job.requests, answers, tolerance)
        matrices.append(np.asarray(np.linalg.solve(job.meter.points, C.T).T, dtype=np.float64))
        ranks.append(rank)
    return matrices, ranks


def _correct_leaks(
    respond: Responses,
    a: Array,
    jobs: list[_Job],
    left: Array,
    readouts: Array,
    tolerance: float,
    first: tuple[list[Array], list[int | None]],
) -> tuple[list[Array], list[int | None]]:
    """Matrices and ranks, from the first ones: what the others add is predicted and subtracted until nothing
    changes; where it is too much, asked again nearer to the base row."""
    matrices, ranks = first
    backgrounds = [job.meter.background for job in jobs]
    for _ in range(_LEAK_ROUNDS):
        worst, again = 0.0, []
        for h, job in enumerate(jobs):
            others = [k for k in range(len(jobs)) if k != h]
            probed = max(
                (block.points.stop for block in job.blocks if block.points.stop - block.points.start == 1),
                default=0,
            )
            predicted = PredictedBackground(
                a, [matrices[k] for k in others], readouts[others], job.meter.points, probed
            )
            for block in job.blocks:
                saturated, leaking = (
                    backgrounds[h](block.directions, block.steps, block.points)[1],
                    predicted(block.directions, block.steps, block.points)[1],
                )
                share = np.abs(leaking - saturated) / np.maximum(np.abs(block.answers - saturated), 1e-300)
                worst = max(worst, float(share.max(initial=0.0)))
                if np.any(share > _LARGEST_LEAK):
                    job.meter.drop(block, share > _LARGEST_LEAK)
                    again.append((job.meter, block))
            job.meter.replace_background(predicted)
        if worst < _NO_LEAK * respond.rounding:
            break
        ask_together(respond, again)
        before = matrices
        matrices, ranks = _assemble(jobs, left, tolerance)
        change = max(
            float(np.linalg.norm(x - y) / np.linalg.norm(x)) for x, y in zip(matrices, before, strict=True)
        )
        if (
            not again and min(1.0, 100 * worst) * change < respond.rounding
        ):  # the next round would move a leak by its share of this change
            break
    return matrices, ranks


def _basis_from(a: Array, rng: np.random.Generator) -> Array:
    """An orthonormal basis with a's direction first."""
    d = len(a)
    basis = np.linalg.qr(np.column_stack([a, rng.standard_normal((d, d - 1))]))[0]
    basis[:, 0] = a / np.linalg.norm(a)
    return np.asarray(basis)


def _factors(W: Array, rank: int | None) -> object:
    """W as factors where its rank is low: as found, or as the singular values show where all of W was
    measured."""
    whole = rank is None or rank >= len(W)
    columns = len(W) if rank is None else min(rank + 8, len(W))  # W has no other range
    sketch = W if whole else W @ np.random.default_rng(0).standard_normal((len(W), columns))
    inside = np.linalg.qr(sketch)[0]
    left, values, right = np.linalg.svd(inside.T @ W, full_matrices=False)
    kept = int((values > _RANK * values[0]).sum()) if values[0] > 0 else 0
    kept = kept if rank is None else min(rank, kept)
    return W if kept == len(W) else (inside @ (left[:, :kept] * values[:kept]), right[:kept].T)
