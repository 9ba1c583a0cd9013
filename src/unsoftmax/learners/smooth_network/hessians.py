"""Hessians of an asked network at many points, on a subspace that grows until it tells all neurons apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.learners.smooth_network.curvature import Region, Stencil, symmetric_directions, symmetric_from
from unsoftmax.learners.smooth_network.rank_one import as_vectors
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["CURVATURE_TEST", "HessianTable", "measure_hessians", "spread_points"]

CURVATURE_TEST = Test("second derivatives span as many dimensions as there are neurons")

_SPARE = 6  # Hessians beyond the rank that must add nothing
_GAP = 30.0  # ratio of neighbouring singular values that ends the span
_WIDE_GAP = 1e3  # between two singular values that is one, wherever it stands
_ROUNDS = 48  # more points each, until second derivatives span nothing new


@dataclass(frozen=True)
class HessianTable:
    """Second derivatives at points of a subspace.

    basis: (q, k), orthonormal rows. points: (P, k), within its span. forms: (P, m, q, q). rank: dimensions of
    their span.
    space: (q(q + 1)/2, rank), an orthonormal basis of the span. floor: relative size of what is beyond the
    span. wider: the basis of a span with weak directions in it, such as two nearly parallel neurons leave;
    None where no further gap shows one.
    """

    basis: Array
    points: Array
    forms: Array
    space: Array
    floor: float
    wider: Array | None = None

    @property
    def rank(self) -> int:
        return int(self.space.shape[1])


def measure_hessians(
    asks: Asks, region: Region, rng: np.random.Generator, *, filled: float = 0.6
) -> HessianTable:
    """Grows points and subspace until the span of the Hessians fills at most this part of all forms and stops
    growing."""
    k, m = asks.width, asks.outputs
    stencil = Stencil.for_region(region)
    whole = np.linalg.qr(rng.standard_normal((k, k)))[0].T
    most = (
        region.size if np.isinf(asks.radius) else min(region.size, 0.97 * asks.radius - 1.5 * stencil.reach)
    )
    q, count = min(k, 4), max(3, -(-8 // m))
    points, seconds = np.empty((0, k)), np.empty((0, 0, m))
    for _ in range(_ROUNDS):
        points, seconds = _grow(asks, stencil, whole[:q], (points, seconds), count, most, rng)
        forms = symmetric_from(seconds.transpose(0, 2, 1), q)
        rows = as_vectors(forms).reshape(count * m, -1)
        rank, floor, space, wider = _span(rows, region, stencil)
        full = rank > filled * rows.shape[1]
        if not full and rank <= len(rows) - _SPARE:
            if rank == 0:
                raise OutsideClass(
                    CURVATURE_TEST, "no second derivative differs from zero at the points asked"
                )
            return HessianTable(whole[:q], points, forms, space, floor, wider)
        if full and q == k and (rank == rows.shape[1] or rank <= len(rows) - _SPARE):
            if rank < rows.shape[1]:
                return HessianTable(whole[:q], points, forms, space, floor)
            raise Unresolved(
                f"second derivatives fill all {rows.shape[1]} dimensions that width {k} has: more neurons "
                "than can be told apart this way, or no network of two layers; more outputs, or a wider "
                "input, would help"
            )
        if full and q < k:
            q = min(k, max(q + 1, int(np.ceil(1.12 * q))))
        if rank > len(rows) - _SPARE:
            count = int(np.ceil(1.15 * count)) + -(-_SPARE // m)
    raise Unresolved(f"the span of second derivatives still grows after {len(points)} points")


def _grow(
    asks: Asks,
    stencil: Stencil,
    basis: Array,
    asked: tuple[Array, Array],
    count: int,
    size: float,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Points and second differences, with what was asked before: new directions at old points, and all
    directions at new points."""
    points, seconds = asked
    directions = symmetric_directions(basis)
    if seconds.shape[1] < len(directions) and len(points):
        more = stencil.measure(asks, points, directions[seconds.shape[1] :])
        seconds = np.concatenate([seconds, more], axis=1)
    if count > len(points):
        fresh = spread_points(rng, count - len(points), len(basis), size) @ basis
        more = stencil.measure(asks, fresh, directions)
        seconds = more if not len(points) else np.concatenate([seconds, more])
        points = np.concatenate([points, fresh])
    return points, seconds


def spread_points(rng: np.random.Generator, count: int, width: int, size: float) -> Array:
    """Random directions with norms spread between 0.3 and 1 of `size`."""
    points = rng.standard_normal((count, width))
    points *= (size * rng.uniform(0.3, 1.0, count) / np.linalg.norm(points, axis=1))[:, None]
    return points


def _span(rows: Array, region: Region, stencil: Stencil) -> tuple[int, float, Array, Array | None]:
    """(rank, relative floor, space, wider): the widest gap above the noise ends the span, the last one the
    wider span, as long as rows are left that add nothing to it."""
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    noise = 10.0 * region.noise / stencil.step**2 * np.sqrt(len(rows))
    top = float(sizes[0])
    if top <= noise:
        return 0, 1.0, right[:0].T, None
    above = np.flatnonzero(sizes > max(noise, 1e-13 * top))
    rank = most = int(above[-1]) + 1
    ratios = sizes[:rank] / np.append(sizes[1:rank], sizes[rank] if rank < len(sizes) else noise)
    # truncation leaves a tail above the rounding; a gap beside the largest must be a wide one
    weak = np.flatnonzero((ratios > _GAP) & ((sizes[:rank] < 0.3 * top) | (ratios > _WIDE_GAP)))
    if len(weak):
        rank, most = int(weak[np.argmax(ratios[weak])]) + 1, int(weak[-1]) + 1
    floor = float(sizes[rank] / sizes[rank - 1]) if rank < len(sizes) else noise / float(sizes[rank - 1])
    further = rank < most <= len(rows) - _SPARE
    return rank, floor, right[:rank].T, right[:most].T if further else None
