"""Several heads behind arithmetic that rounds at every step, vector answers, with honest bounds."""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.computed.attempts import ATTEMPTS, SAME_OBSTACLE, USELESS
from unsoftmax.learners.computed.error_bound import FACTOR, LEVEL, HeadErrors
from unsoftmax.learners.computed.fresh_check import check_fresh
from unsoftmax.learners.computed.several_heads import RecoveredHeads, unresolved
from unsoftmax.learners.computed.two_row_queries import Asks
from unsoftmax.learners.computed.vector_route import FittedVectorHeads, fit_vector_heads
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.joint_refinement import Spread
from unsoftmax.solvers.vector_heads import VectorHeads

__all__ = ["recover_vector_heads"]

_DRAWS, _FEW_DRAWS = 200, 30  # few where every draw is a system of equations


def recover_vector_heads(
    asker: Asks, bits: int, rng: np.random.Generator, effort: float = 1.0
) -> RecoveredHeads:
    """All heads up to their order. Queries: about 7.6 times the parameters over the outputs. Raises
    Unresolved, naming the obstacle, where that cannot be done.
    """
    reasons: list[str] = []
    for _ in range(ATTEMPTS):
        try:
            fitted = fit_vector_heads(asker, bits, rng, effort)
        except (Unresolved, np.linalg.LinAlgError) as reason:
            reasons.append(str(reason))
            if len(reasons) == SAME_OBSTACLE:
                break
            continue
        model = _as_model(fitted.heads)
        check = check_fresh(asker, model, bits, fitted.baseline.noise, rng)
        found = RecoveredHeads(model, _errors(fitted, rng), check, fitted.baseline.noise)
        if found.check.passed and found.errors.overall < USELESS:
            return found
        reasons.append(found.why_not)
    raise unresolved(bits, reasons)


def _as_model(heads: VectorHeads) -> MultiHead:
    singles = [
        SingleHead((K[:rank].T, Q[:rank, :-1].T), value, w0=K[:rank].T @ Q[:rank, -1])
        for K, Q, value, rank in zip(heads.K, heads.Q, heads.values, heads.ranks, strict=True)
    ]
    return MultiHead(singles, heads.c)


def _errors(fitted: FittedVectorHeads, rng: np.random.Generator) -> HeadErrors:
    """99 % bounds from the covariance of the fit, relative to W, V and the constants."""
    heads = fitted.heads
    spread = Spread.of(fitted.fit, heads, gauge=heads.gauge)
    count = _DRAWS if heads.unknowns <= spread.options.dense_limit else _FEW_DRAWS
    sizes = np.linalg.norm(heads.matrices[:, :, :-1], axis=(1, 2))
    values = np.linalg.norm(heads.values, axis=(1, 2))
    in_W, in_v, in_c, largest = [], [], [], []
    for step in spread.draw(count, rng):
        dW, dV, dc = heads.changes(step)
        in_W.append(np.linalg.norm(dW, axis=(1, 2)) / sizes)
        in_v.append(np.linalg.norm(dV, axis=(1, 2)) / values)
        in_c.append(float(np.abs(dc).max()))
        constant = float(np.linalg.norm(dc)) / max(float(np.linalg.norm(heads.c)), float(values.max()))
        largest.append(max(float(in_W[-1].max()), float(in_v[-1].max()), constant))
    return HeadErrors(
        FACTOR * np.quantile(in_W, LEVEL, axis=0),
        FACTOR * np.quantile(in_v, LEVEL, axis=0),
        FACTOR * float(np.quantile(largest, LEVEL)),
        FACTOR * float(np.quantile(in_c, LEVEL)),
    )
