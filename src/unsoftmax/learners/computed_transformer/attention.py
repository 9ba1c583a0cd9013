"""Attention before a known network: a start from single scores, a fit to sequences of several lengths, a
check on fresh ones, and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.asking import local_rounding, usual_size
from unsoftmax.learners.computed_network.one_row import EXPLAINED
from unsoftmax.learners.computed_transformer.attention_fit import Attention, AttentionFit
from unsoftmax.learners.computed_transformer.start import find_attention
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.models import ReluNetwork, Transformer
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.held_parameters import Held
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["FittedAttention", "fit_attention"]

_SURPLUS = 4.0  # answers over unknowns
_LENGTHS = (2, 4)  # two rows show a score; four show how the softmax shares
_LOOKED = 48  # sequences of a length at which rounding is measured
_FRESH = ((2, 48), (5, 48), (17, 48))  # (rows, sequences): 5 and 17 rows are lengths that the fit did not see
_FIT = RefinementOptions(iterations=20, damping=1e-6, improvement=1e-3, dense_limit=9000)
# unknowns that are zero lower the squared residual by one unit each, by chance by three each and ten in all
_BY_CHANCE = (3.0, 10.0)
_USUAL_SHARES = (1.0, 0.5)  # ρ without a skip connection, and with the usual one


@dataclass(frozen=True)
class FittedAttention:
    """free: which unknowns were fitted; the others are held at zero, or at a usual factor. solve: what
    residuals move those unknowns by."""

    fit: AttentionFit
    state: Attention
    free: NDArray[np.bool_]
    solve: Array

    def model(self) -> Transformer:
        """The network sees what single rows show at 1 + residual times their size."""
        residual = 1.0 / self.state.share - 1.0
        network = ReluNetwork.from_folds(self.fit.folds.scaled(self.state.share))
        w0 = self.state.matrix[:, -1] if self.state.matrix[:, -1].any() else None
        return Transformer(self.state.matrix[:, :-1], network, w0, residual)

    def changed(self, folds: CanonicalNetwork, rng: np.random.Generator) -> FittedAttention:
        """What another network makes of the same answers, with rounding drawn anew."""
        moved = self.fit.weights * (self.fit.predict(self.state, folds) - self.fit.predict(self.state))
        left = rms(self.fit.residual(self.state)) * np.sqrt(_SURPLUS / (_SURPLUS - 1.0))
        step = np.zeros(len(self.free))
        step[self.free] = -self.solve @ (moved + left * rng.standard_normal(len(moved)))
        return replace(self, fit=replace(self.fit, folds=folds), state=self.fit.moved(self.state, step))


def fit_attention(
    asks: AsksSequences, folds: CanonicalNetwork, held: FloatFormat, rng: np.random.Generator
) -> FittedAttention:
    """folds: the network that single rows show. Raises Unresolved where rounding does not explain what the
    fit, or fresh sequences, leave."""
    start, size = find_attention(asks, folds, held, rng)
    count = int(_SURPLUS * start.vector.size / len(_LENGTHS)) + 16
    fit = AttentionFit(folds, (), np.empty(0), np.empty(0))
    for length in _LENGTHS:
        fit = _with_sequences(fit, asks, held.store(_rows(count, length, folds.width, size, rng)), held, rng)
    state, free = _simplest(fit, refine(fit, start, _FIT).state)
    fresh = AttentionFit(folds, (), np.empty(0), np.empty(0))
    for length, number in _FRESH:
        rows = held.store(size * rng.standard_normal((number, length, folds.width)))
        fresh = _with_sequences(fresh, asks, rows, held, rng)
    left = max(usual_size(each.residual(state)) for each in (fit, fresh))
    if left > EXPLAINED:
        raise Unresolved(
            f"attention before the network leaves {left:.2g} times the rounding of answers to sequences"
        )
    jacobian = fit.linearise(state).jacobian[:, free]
    solve = np.asarray(np.linalg.pinv(jacobian, rcond=1e-10), dtype=np.float64)
    return FittedAttention(fit, state, free, solve)


def _rows(count: int, length: int, width: int, size: float, rng: np.random.Generator) -> Array:
    """Entries from the size at which scores are moderate to that of tokens."""
    sizes = np.exp(rng.uniform(np.log(min(size, 1.0)), np.log(max(size, 1.0)), (count, 1, 1)))
    return np.asarray(sizes * rng.standard_normal((count, length, width)))


def _with_sequences(
    fit: AttentionFit, asks: AsksSequences, rows: Array, held: FloatFormat, rng: np.random.Generator
) -> AttentionFit:
    """Weighted so that rounding, which grows with the answers, is one."""
    answers = asks(rows).ravel()
    sizes = np.sqrt(rms(fit.folds(rows[:, -1])) ** 2 + answers**2)
    looked = rows[:_LOOKED]
    rounding = local_rounding(asks, looked, 1.0 / sizes[:_LOOKED], held, rng)
    return replace(
        fit,
        rows=(*fit.rows, rows),
        answers=np.append(fit.answers, answers),
        weights=np.append(fit.weights, 1.0 / (max(rounding, held.unit / 4.0) * sizes)),
    )


def _simplest(fit: AttentionFit, state: Attention) -> tuple[Attention, NDArray[np.bool_]]:
    """Without a query bias, and with a usual factor of the skip connection, where answers are explained as
    well."""
    d = state.matrix.shape[0]
    free = np.ones(state.vector.size, dtype=bool)
    for share in _USUAL_SHARES:
        plain, fewer = replace(state, share=share), free.copy()
        fewer[-1] = False
        state, free = _if_as_good(fit, (state, free), (plain, fewer))
    biasless, fewer = replace(state, matrix=state.matrix * (np.arange(d + 1) < d)), free.copy()
    fewer[:-1].reshape(d, d + 1)[:, -1] = False
    return _if_as_good(fit, (state, free), (biasless, fewer))


def _if_as_good(
    fit: AttentionFit,
    usual: tuple[Attention, NDArray[np.bool_]],
    simpler: tuple[Attention, NDArray[np.bool_]],
) -> tuple[Attention, NDArray[np.bool_]]:
    found = refine(Held(fit, simpler[1]), simpler[0], _FIT)
    residual = fit.residual(usual[0])
    fewer, spare = int(usual[1].sum() - simpler[1].sum()), len(residual) - int(usual[1].sum())
    expected = float(residual @ residual) * (1.0 + (_BY_CHANCE[0] * fewer + _BY_CHANCE[1]) / spare)
    return (found.state, simpler[1]) if found.rms[-1] ** 2 * len(residual) <= expected else usual
