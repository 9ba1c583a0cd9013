"""Ranks of heads, as low as the answers allow, and weights of answers, by their residuals."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.fit_progress import DENSE
from unsoftmax.learners.computed.two_row_queries import Baseline
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock, TwoRowFit, predict_block
from unsoftmax.solvers.least_squares.joint_refinement import Refined, RefinementOptions, refine

__all__ = ["cut_ranks", "explains_as_much", "reweighted", "with_one_more_row"]

# singular values that may go, in units of the noise and of the largest
_CUTS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
_OWN_ROUNDING = 10.0  # below it a singular value is the rounding of W itself
_WIDE_GAP = 20.0  # between neighbouring singular values; random and trained factors have none above 5
_SETTLED = 0.003  # of the squared residual: what a fit that has stopped may still miss
_SHORT = RefinementOptions(
    iterations=8, damping=1e-5, improvement=1e-2, dense_limit=DENSE, inner_iterations=60, inner_tolerance=1e-2
)


class _Sized(Protocol):
    @property
    def parameters(self) -> int: ...


_State = TypeVar("_State", bound=_Sized)


def with_one_more_row(heads: HeadFactors, rng: np.random.Generator) -> HeadFactors:
    """One more small row per head, in case the start has missed a weak direction."""
    d = heads.width
    ranks = [min(rank + 1, d) for rank in heads.ranks]
    top = max(ranks)
    K, Q = np.zeros((heads.heads, top, d)), np.zeros((heads.heads, top, d + 1))
    K[:, : heads.K.shape[1]], Q[:, : heads.Q.shape[1]] = heads.K, heads.Q
    for h, (old, new) in enumerate(zip(heads.ranks, ranks, strict=True)):
        if new > old:
            size = 3e-3 * float(np.sqrt(np.mean(heads.K[h] ** 2)))
            K[h, old], Q[h, old] = size * rng.standard_normal(d), size * rng.standard_normal(d + 1)
    return replace(heads, K=K, Q=Q, ranks=tuple(ranks))


def cut_ranks(fit: TwoRowFit, fitted: Refined[HeadFactors], baseline: Baseline) -> HeadFactors:
    """The lowest ranks that the answers accept."""
    heads, noise = fitted.state, baseline.noise
    spectra = heads.spectra
    for cut in (None, *_CUTS):
        if cut is not None and cut * noise > 0.05:
            continue
        ranks = _ranks_after(spectra, heads.ranks, None if cut is None else cut * noise)
        if ranks == heads.ranks:
            continue
        trimmed = refine(fit, heads.cut(ranks), _SHORT)
        if not baseline.coarse and cut is not None and cut <= _OWN_ROUNDING:
            return trimmed.state
        if explains_as_much(fit.answers, fitted, trimmed):
            return trimmed.state
    return heads


def explains_as_much(answers: int, whole: Refined[_State], cut: Refined[_State]) -> bool:
    """A cut may raise the squared residual by what its parameters explain of pure noise."""
    lost = whole.state.parameters - cut.state.parameters
    free = max(answers - whole.state.parameters, answers // 4)
    return cut.rms[-1] ** 2 < whole.rms[-1] ** 2 * (1.0 + 3.0 * lost / free + _SETTLED)


def _ranks_after(spectra: list[Array], ranks: tuple[int, ...], relative: float | None) -> tuple[int, ...]:
    found = [
        _rank_at_gap(values, rank) if relative is None else int((values > relative * values[0]).sum())
        for values, rank in zip(spectra, ranks, strict=True)
    ]
    return tuple(max(1, min(new, old)) for new, old in zip(found, ranks, strict=True))


def _rank_at_gap(values: Array, rank: int) -> int:
    """The rank at the widest gap of a spectrum, when it is wide and what follows is below 1e-3 of the
    largest.
    """
    head, tail = values[: rank - 1], np.maximum(values[1:rank], 1e-300)
    ratios = np.where(tail < 1e-3 * values[0], head / tail, 0.0)
    return int(np.argmax(ratios)) + 1 if len(ratios) and ratios.max() > _WIDE_GAP else rank


def reweighted(fit: TwoRowFit, heads: HeadFactors) -> TwoRowFit:
    """Every group of answers by its median residual, and single answers that are off by more than four of it
    by that.

    A group's residual counts as at least 0.3 of the overall one: a group that an overparameterised fit has
    learnt by heart must not become the most trusted.
    """
    left = [np.abs(block.weights * (predict_block(heads, block) - block.answers)) for block in fit.blocks]
    overall = _deviation(np.concatenate([part.ravel() for part in left]))
    used = float(np.sqrt(fit.answers / max(fit.answers - heads.parameters, fit.answers / 4)))
    sizes: dict[str, list[Array]] = {}
    for block, part in zip(fit.blocks, left, strict=True):
        sizes.setdefault(block.group, []).append(part.ravel())
    units = {
        group: used * max(_deviation(np.concatenate(parts)), 0.3 * overall, 1e-12)
        for group, parts in sizes.items()
    }
    return TwoRowFit.of(
        [_scaled(block, part, units[block.group]) for block, part in zip(fit.blocks, left, strict=True)]
    )


def _scaled(block: AnswerBlock, left: Array, size: float) -> AnswerBlock:
    outliers = np.minimum(1.0, 4.0 / np.maximum(left / size, 1e-30))
    return replace(block, weights=block.weights * outliers / size)


def _deviation(left: Array) -> float:
    """Standard deviation of normal numbers with this median of their absolute values."""
    return 1.4826 * float(np.median(left))
