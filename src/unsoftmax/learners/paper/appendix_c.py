"""Appendix C of the paper: heads that live in orthogonal subspaces, known (Proposition C.2) or found from
second differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.paper.theorem_4_1 import Theorem41
from unsoftmax.ledger import Asker
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import NotIdentifiable, Unresolved
from unsoftmax.solvers.block_diagonal import common_blocks

__all__ = ["HiddenSubspaces", "KnownSubspaces", "appendix_c"]

_ASSUMED = (
    Assumption("every head's W and v live in a subspace of its own, orthogonal to the others", "certificate"),
    Assumption("no biases", "certificate"),
)


@dataclass(frozen=True)
class KnownSubspaces:
    """Proposition C.2: inside the subspace of one head all others see zeros, so it is the single-head problem
    there.

    Claim: exact recovery. Queries: Σ(d_h + d_h²). Assumes: bases of the subspaces are given, orthonormal,
    mutually orthogonal. Recovers: all heads.
    Departs from the paper: nothing. Fails when: heads reach outside their subspaces (the certificate shows
    it).
    """

    family: ClassVar[Family] = Family.MULTI_HEAD
    bases: tuple[Array, ...]
    inner: Learner = field(default_factory=Theorem41)

    @property
    def claim(self) -> Claim:
        sizes = [basis.shape[1] for basis in self.bases]
        return Claim(
            title="Proposition C.2: known orthogonal subspaces",
            source="arXiv 2601.16873, Proposition C.2",
            assumptions=_ASSUMED,
            queries=QueryCount("sum of d_h + d_h^2", "exact", lambda size: sum(k + k * k for k in sizes)),
            recovers="W and v of every head",
            symmetry="order of heads",
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        heads = []
        for basis in self.bases:
            try:
                part = self.inner.learn(asker.on(basis), Known(), rng).model
            except NotIdentifiable:
                continue  # v = 0 there: a head that says nothing
            assert isinstance(part, SingleHead)
            heads.append(SingleHead((basis @ part.W, basis), basis @ part.v))
        if not heads:
            raise NotIdentifiable(
                "no head says anything inside its subspace: v = 0 in all of them, and W leaves no trace"
            )
        return Learned(MultiHead(heads), self.claim)


_HIDDEN = Claim(
    title="Appendix C: hidden orthogonal subspaces",
    source="arXiv 2601.16873, Appendix C",
    assumptions=_ASSUMED,
    queries=QueryCount(
        "d(d² + 3d + 2)/2 + d + d²",
        "upper",
        lambda size: size.width * (size.width**2 + 5 * size.width + 4) // 2,
    ),
    recovers="W and v of every head, to about 1e-7",
    symmetry="order of heads",
)


@dataclass(frozen=True)
class HiddenSubspaces:
    """The same with unknown subspaces: second differences of f([u + e_j; e_j]) in u are block diagonal in
    them.

    Claim: the paper conjectures it. Queries: d((d² + 3d)/2 + 1) for the differences, then Σ(d_h + d_h²).
    Assumes: the vectors W_h e_j and v_h fill the head's subspace. Recovers: the subspaces to about the root
    of float64 precision (1e-8), and the heads to that precision.
    Departs from the paper: finite differences stand for Hessians. Fails when: two heads' subspaces are not
    orthogonal (one common block).
    """

    family: ClassVar[Family] = Family.MULTI_HEAD
    claim: ClassVar[Claim] = _HIDDEN
    step: float = 2e-4
    largest_width: int = 32

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        if d > self.largest_width:
            raise Unresolved(
                f"common blocks are searched up to width {self.largest_width}, not {d}; the multi-head "
                "learner needs no subspaces"
            )
        with asker.phase("second differences"):
            curvatures = _second_differences(asker, self.step)
        blocks = common_blocks(curvatures, rng)
        if not blocks:
            raise Unresolved("no second difference of the answers is seen: no head reacts to the asking row")
        learned = KnownSubspaces(tuple(blocks)).learn(asker, known, rng)
        size = float(np.max(np.linalg.norm(curvatures, axis=(1, 2))))
        blur = self.step**2 + 4e-16 * (1.0 + size) / (self.step**2 * size)
        note = f"{len(blocks)} subspaces of dimensions {sorted(block.shape[1] for block in blocks)}"
        return Learned(learned.model, self.claim, error_bound=100 * d * blur, note=note)


def _second_differences(asker: Asker, step: float) -> Array:
    """(d, d, d): for every asking row e_j the second differences of f([u + e_j; e_j]) at u = 0, symmetric."""
    d = asker.width
    rows, columns = np.triu_indices(d)
    unit = step * np.eye(d)
    moves = np.concatenate([np.zeros((1, d)), unit, unit[rows] + unit[columns]])
    found = np.empty((d, d, d))
    for j in range(d):
        asking = np.zeros(d)
        asking[j] = 1.0
        batch = np.stack([moves + asking, np.broadcast_to(asking, moves.shape)], axis=1)
        answers = asker.ask(batch)
        pairs = (answers[1 + d :] - answers[1 + rows] - answers[1 + columns] + answers[0]) / step**2
        found[j, rows, columns] = found[j, columns, rows] = pairs
    return found


def appendix_c(subspaces: Sequence[object] | None = None) -> Learner:
    """The learner of Appendix C for `recover(target, learner=...)`: with bases (d, d_h) of the heads'
    subspaces, or without.

    >>> import unsoftmax
    >>> eye = np.eye(4)
    >>> heads = [unsoftmax.SingleHead(eye[:, s] @ eye[:, s].T, eye[:, s].sum(1)) for s in (slice(0, 2), slice(
    ...     2, 4))]
    >>> hidden = unsoftmax.MultiHead(heads)
    >>> result = unsoftmax.recover(hidden, learner=appendix_c([eye[:, :2], eye[:, 2:]]))
    >>> str(result.status), result.queries.learning
    ('EXACT', 12)
    """
    if subspaces is None:
        return HiddenSubspaces()
    bases = tuple(np.array(basis, dtype=np.float64) for basis in subspaces)
    if not bases or any(basis.ndim != 2 or basis.shape[0] != bases[0].shape[0] for basis in bases):
        raise UsageError("subspaces must be a list of bases (d, d_h), all with d rows")
    joined = np.hstack(bases)
    if joined.shape[1] > joined.shape[0] or np.abs(joined.T @ joined - np.eye(joined.shape[1])).max() > 1e-10:
        raise UsageError(
            "the bases of the subspaces must be orthonormal and orthogonal to each other; use "
            "numpy.linalg.qr on each"
        )
    return KnownSubspaces(bases)
