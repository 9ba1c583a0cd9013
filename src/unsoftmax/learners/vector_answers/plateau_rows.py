"""Which part of a vector answer belongs to which head: plateaus of saturated heads, told apart by the rank of
their differences."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import DependentOutputs, Restart
from unsoftmax.learners.vector_answers.row_answers import VectorResponses

__all__ = ["PlateauRows", "Separation", "find_plateaus", "separate_by_plateaus"]

_BASE = 2.0**24  # of the base row: scores saturate along almost all of a circle
_STABLE = 4  # rounds for which the number of steps must not change
_RANK = 1e-6  # of the largest singular value: plateaus that differ by less are one
_DETAIL = 1e-8  # of the largest singular value: outputs of one head, where rounding leaves 1e-12


@dataclass(frozen=True)
class Separation:
    """T_h (m, r_h), orthonormal: column space of head h's part of the answer. `unmix` takes an answer to all
    parts at once."""

    blocks: list[Array]

    @property
    def slices(self) -> list[slice]:
        edges = np.cumsum([0, *(block.shape[1] for block in self.blocks)])
        return [slice(int(x), int(y)) for x, y in itertools.pairwise(edges)]

    @property
    def joined(self) -> Array:
        return np.hstack(self.blocks)

    def unmix(self) -> Array:
        """(Σr, m): the pseudo-inverse of all blocks side by side."""
        return np.asarray(np.linalg.pinv(self.joined))

    def values(self, V: Array) -> list[Array]:
        """G_h (r_h, d) with V_hᵀ = T_h G_h, from V̄ = Σ V_h."""
        both = self.unmix() @ V.T
        return [both[part] for part in self.slices]

    @property
    def condition(self) -> float:
        return float(np.linalg.cond(self.joined))


@dataclass(frozen=True)
class PlateauRows:
    """A base row a, H asking rows on different plateaus, and how wide the narrowest plateau is (in angle)."""

    a: Array
    points: Array
    gap: float


def find_plateaus(respond: VectorResponses, rng: np.random.Generator) -> PlateauRows:
    """Bisection of a line of asking rows until the number of steps equals the rank of the answers'
    differences."""
    d = respond.width
    bound = respond.asker.input_bound
    base = _BASE if bound is None else bound / 2
    a = rng.standard_normal(d)
    a *= base / np.linalg.norm(a)
    p, q = np.linalg.qr(rng.standard_normal((d, 2)))[0].T * (
        np.sqrt(d) if bound is None else min(np.sqrt(d), bound / 16)
    )
    whole = a @ respond.V
    size = float(np.abs(whole).max())
    tolerance = max(1e-9, 3e3 * respond.rounding) * size

    def points(angles: Array) -> Array:
        return np.asarray(p + np.tan(angles)[:, None] * q)

    def ask(angles: Array) -> Array:
        return respond(a[None], points(angles))

    limit = 1.5
    while True:
        ends = ask(np.array([-limit, limit]))
        if np.abs(ends.sum(axis=0) - whole).max() < 10 * tolerance * max(1.0, np.tan(limit) / 1e3):
            break
        limit = np.pi / 2 - (np.pi / 2 - limit) / 4
        if np.pi / 2 - limit < 1e-5:
            raise Restart("the heads do not saturate at both ends of a line of asking rows")
    open_ = [(-limit, limit, ends[0], ends[1])]
    history: list[int] = []
    for _ in range(40):
        open_ = [piece for piece in open_ if np.abs(piece[2] - piece[3]).max() > tolerance]
        if not open_:
            raise Restart("the answers do not depend on the asking row")
        jumps = np.array([piece[3] - piece[2] for piece in open_])
        values = np.linalg.svd(jumps / np.linalg.norm(jumps, axis=1)[:, None], compute_uv=False)
        rank = int((values > _RANK * values[0]).sum())
        history.append(len(open_))
        apart = all(x[1] < y[0] - 1e-12 for x, y in itertools.pairwise(open_))
        widest = max(piece[1] - piece[0] for piece in open_)
        if (
            len(open_) == rank
            and apart
            and widest < 0.02
            and len(set(history[-_STABLE:])) == 1
            and len(history) > _STABLE
        ):
            edges = [-limit, *(edge for piece in open_ for edge in piece[:2]), limit]
            gaps = np.array(edges).reshape(-1, 2)
            narrowest = float((gaps[:, 1] - gaps[:, 0]).min())
            if narrowest < 1e-5:
                raise Restart("two heads switch too near to each other")
            return PlateauRows(a, points(gaps.mean(axis=1)), narrowest)
        if len(open_) > 5 * rank + 8 or len(history) > 24:
            raise Restart("the steps along a line of asking rows do not come apart")
        middles = np.array([(piece[0] + piece[1]) / 2 for piece in open_])
        found = ask(middles)
        open_ = [
            half
            for piece, m, f in zip(open_, middles.tolist(), found, strict=True)
            for half in ((piece[0], m, piece[2], f), (m, piece[1], f, piece[3]))
        ]
    raise Restart("the steps along a line of asking rows do not come apart")


def separate_by_plateaus(
    respond: VectorResponses, plateaus: PlateauRows, rng: np.random.Generator
) -> Separation:
    """T_h from the same plateaus with a moved a little, until no head shows a new direction; about H(r + 1)
    queries."""
    d, H = respond.width, len(plateaus.points) - 1
    size = float(np.linalg.norm(plateaus.a))
    step = min(0.1, 0.02 * plateaus.gap) * size
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    base = _parts(respond, plateaus, plateaus.a[None])[0]
    seen = [[part] for part in base]  # one list of vectors a head
    used = 0
    while used < d:
        count = min(d - used, 2)
        rows = plateaus.a + step * directions[used : used + count]
        used += count
        parts = _parts(respond, plateaus, rows)
        moved = (np.linalg.norm(parts - base, axis=2) / np.linalg.norm(base, axis=1)).max(axis=1)
        for part, change in zip(parts, moved, strict=True):
            if change < min(0.5, 60 * step / size):  # more means that a head switched
                for h in range(H):
                    seen[h].append((part[h] - base[h]) / (step / size))
        if len(seen[0]) < used / 2:
            raise Restart("heads switch while the base row is moved")
        ranks = [_rank(np.array(vectors), respond.rounding / (step / size)) for vectors in seen]
        if max(ranks) < len(seen[0]):
            break
    blocks = []
    for vectors, rank in zip(seen, ranks, strict=True):
        right = np.linalg.svd(np.array(vectors), full_matrices=False)[2]
        blocks.append(right[:rank].T)
    if sum(ranks) > len(respond.c):
        raise DependentOutputs(
            f"the heads' outputs have {sum(ranks)} dimensions in all, and an answer only {len(respond.c)}"
        )
    return Separation(blocks)


def _parts(respond: VectorResponses, plateaus: PlateauRows, rows: Array) -> Array:
    """±V_hᵀa for every row a and head h, shape (rows, H, m): differences of neighbouring plateaus."""
    H = len(plateaus.points) - 1
    found = respond(
        np.repeat(rows, H, axis=0)[:, None], np.tile(plateaus.points[:H], (len(rows), 1))
    ).reshape(len(rows), H, -1)
    last = rows @ respond.V - found[:, 0]
    return np.diff(np.concatenate([found, last[:, None]], axis=1), axis=1)


def _rank(vectors: Array, noise: float) -> int:
    values = np.linalg.svd(vectors, compute_uv=False)
    return int((values > max(_DETAIL, 1e3 * noise) * values[0]).sum())
