"""How wrong can the parameters of several heads be? Each head is read alone on fresh rows, where the others
are saturated."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, longest_rows, rms
from unsoftmax.certify.joint_bound import joint_error_bound
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.several_heads.isolating_pairs import (
    PairSizes,
    isolating_pairs,
    mirrored,
    moderate_pairs,
    saturating_pairs,
    switching_pairs,
)
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits.joint_heads import scale_step

__all__ = ["multi_head_error_bound", "multi_head_rounding_limit"]

_PROBES = 12  # pairs a head whose missing scores are measured
# 12 probes whose root mean square is 6 times below its expectation: about 1e-5 even for errors of rank one
_FACTOR = 6.0
_SATURATED = 14.0  # score from which on less than a millionth of another head's error reaches the answer
_ON_OR_OFF = 40.0  # score from which on a head is on or off to the last digit
_ALIKE = 0.7  # distance of two unit matrices; of random ones it is about 1.4
_BASE = 2.0**16  # norm of rows where nothing bounds them: every usual head is saturated there
_TOO_LARGE = 1e9  # |a||W||b| at which a score's own rounding hides it: such heads are not read alone
_MOST_EXPLAINED = 1e-8  # of what rounding may excuse, however faint a head is
_UNCERTAIN_SCALE = 1e-11  # beyond, the scales are looked at together
_FLOOR = 16 * EPS  # rounding of the comparison itself


def multi_head_error_bound(asker: Asker, model: MultiHead, rng: np.random.Generator) -> float | None:
    """A bound on the relative error of every head's W, w0 and v, from about 25 fresh queries per head; None
    when a head cannot be read alone.

    For random a and a random b at which head h has a moderate score and all others are saturated, the
    answer's deviation through the sigmoid's slope is aᵀE_h b, whose mean square measures |E_h|. Such b are
    nearly orthogonal to W_hᵀa, so an error of W_h's scale is measured apart, from the same rows with the
    opposite score, and where these are long, for all heads together on short ones. The answers' own rounding
    is in all of it, so it is in the bound.
    """
    heads = [head for head in model.heads if head.scores_anything]
    biased = any(head.w0 is not None for head in heads)
    matrices = _matrices(heads, biased)
    probes = []
    for h in range(len(heads)):
        found = _alone(asker, matrices, heads[h], h, biased, rng)
        if found is None:
            return joint_error_bound(asker, model, rng)
        probes.append(found)
    plain = _saturated(asker, matrices, heads, biased, rng)
    if plain is None:
        return joint_error_bound(asker, model, rng)
    worst, scales = 0.0, []
    with asker.phase(VERIFICATION):
        for matrix, (batch, slope, size, score) in zip(matrices, probes, strict=True):
            missing = (asker.ask(batch) - model(batch)) / slope
            # an error of [W w0] may be one of W alone, however small W is beside w0
            against = float(np.linalg.norm(matrix[:, : model.width])) or float(np.linalg.norm(matrix))
            worst = max(worst, rms(missing / size) * np.sqrt(matrix.size) / against)
            scales.append(rms((missing[:_PROBES] - missing[_PROBES:]) / (score[:_PROBES] - score[_PROBES:])))
        if max(scales, default=0.0) > _UNCERTAIN_SCALE:
            scales = np.minimum(
                scales,
                _scales_together(asker, model, matrices, np.array([head.v for head in heads]), biased, rng),
            ).tolist()
        worst = max([worst, *scales])
        smallest = min(float(np.linalg.norm(head.v)) for head in model.heads)
        rows = (_BASE if asker.input_bound is None else asker.input_bound) * _units(rng, model.width)[:, None]
        alone = (asker.ask(rows) - model(rows)) / np.linalg.norm(rows[:, 0], axis=1)
        values = rms(alone)
        for batch, length in plain:
            values = max(values, rms((asker.ask(batch) - model(batch)) / length))
        zero = np.zeros((1, 1, model.width))
        constant = float(np.abs(asker.ask(zero) - model(zero)).max()) / max(
            smallest, float(np.max(np.abs(model.c)))
        )
    return float(_FACTOR * max(worst, values * np.sqrt(model.width) / smallest) + constant) + _FLOOR


def multi_head_rounding_limit(model: MultiHead, *, in_answers: bool = False) -> float:
    """The relative error that float64 rounding alone explains: the closer the heads, the larger the rows that
    tell them apart.

    A score of rows whose sizes multiply to S is rounded by eps·S; solving d² unknowns from such scores may
    amplify it d² times. A faint head is seen through the rounding of all of them; in answers, its errors are
    as faint as itself.
    """
    heads = [head for head in model.heads if head.scores_anything]
    if not heads:
        return 0.0
    biased = any(head.w0 is not None for head in heads)
    matrices = _matrices(heads, biased)
    rng = np.random.default_rng(0)
    largest = 1.0
    for h, head in enumerate(heads):
        v = head.v if head.v.ndim == 1 else head.v @ rng.standard_normal(head.v.shape[1])
        A, B = isolating_pairs(matrices, h, v, _PROBES, rng, PairSizes(1.0, _SATURATED, biased))
        sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1) * float(np.linalg.norm(matrices[h]))
        largest = max(largest, float(np.median(sizes)))
    sizes_of_v = [float(np.linalg.norm(head.v)) for head in heads]
    faint = 1.0 if in_answers else sum(sizes_of_v) / max(min(sizes_of_v), 1e-300)
    return min(EPS * largest * faint * model.width**2, _MOST_EXPLAINED)


def _matrices(heads: list[SingleHead], biased: bool) -> list[Array]:
    """[W w0] of every head, or W where no head has a query bias."""
    return [
        np.column_stack([head.W, np.zeros(head.width) if head.w0 is None else head.w0]) if biased else head.W
        for head in heads
    ]


def _alone(
    asker: Asker, matrices: list[Array], head: SingleHead, h: int, biased: bool, rng: np.random.Generator
) -> tuple[Array, Array, Array, Array] | None:
    """Sequences in which only head h has a moderate score, the slope of the answer, |a||b|, and the score;
    the second half mirrors the first."""
    sizes = PairSizes(_size(asker), _SATURATED, biased, even=True)
    A, B = isolating_pairs(matrices, h, head.v, _PROBES, rng, sizes)
    A, B = np.concatenate([A, A]), np.concatenate([B, mirrored(matrices[h], A, B)])
    scores = np.einsum("qi,qi->q", A @ matrices[h], B)
    slopes = (A @ head.v) / (2.0 + 2.0 * np.cosh(scores))
    batch, kappa = _sequences(A, B, biased)
    sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    if (
        not np.isfinite(batch).all()
        or not _allowed(asker, batch)
        or np.median(sizes) * float(np.linalg.norm(matrices[h])) > _TOO_LARGE
        or not _apart(matrices, h, A, B)
    ):
        return None
    return batch, kappa * slopes, sizes, scores


def _apart(matrices: list[Array], h: int, A: Array, B: Array) -> bool:
    """Whether in most of these pairs head h has a moderate score, and all others are saturated. Rows of one
    column cannot tell heads apart in this way, and rounding draws pairs nevertheless."""
    usual = [float(np.median(np.abs(np.einsum("qi,qi->q", A @ W, B)))) for W in matrices]
    others = usual[:h] + usual[h + 1 :]
    return usual[h] < _SATURATED / 2 <= min(others, default=np.inf)


def _scales_together(
    asker: Asker, model: MultiHead, matrices: list[Array], v: Array, biased: bool, rng: np.random.Generator
) -> Array:
    """Error of every head's scale on short pairs, with twice its uncertainty; where heads are close, those
    that isolate one are too long to tell."""
    A, B = moderate_pairs(matrices, 4 * len(matrices) + 8, rng, size=_size(asker), biased=biased)
    batch, kappa = _sequences(A, B, biased)
    if not np.isfinite(batch).all() or not _allowed(asker, batch):
        return np.full(len(matrices), np.inf)
    scales, doubt = scale_step(matrices, v, A, B, (asker.ask(batch) - model(batch)) / kappa)
    return np.asarray(np.abs(scales) + 2 * doubt)


def _saturated(
    asker: Asker, matrices: list[Array], heads: list[SingleHead], biased: bool, rng: np.random.Generator
) -> list[tuple[Array, Array]] | None:
    """Sequences in which every head is on or off, half of them at random, and the size of their first row.
    Close heads are on or off together there, so that for each of these one is on where the other is off."""
    if not heads:
        return []
    sizes = PairSizes(_size(asker), _ON_OR_OFF, biased)
    pairs = [saturating_pairs(matrices, _PROBES, rng, sizes)]
    pairs += [
        switching_pairs(matrices, h, heads[h].v, _PROBES, rng, sizes)
        for h in range(len(heads))
        if _has_a_close_one(matrices, h)
    ]
    found = []
    for A, B in pairs:
        batch, kappa = _sequences(A, B, biased)
        if not np.isfinite(batch).all() or not _allowed(asker, batch):
            return None
        found.append((batch, np.abs(kappa) * np.linalg.norm(A, axis=1)))
    return found


def _has_a_close_one(matrices: list[Array], h: int) -> bool:
    units = [matrix / np.linalg.norm(matrix) for matrix in matrices]
    return any(float(np.linalg.norm(units[h] - unit)) < _ALIKE for k, unit in enumerate(units) if k != h)


def _sequences(A: Array, B: Array, biased: bool) -> tuple[Array, Array]:
    """[a+b; b], in homogeneous coordinates of b where there are query biases, and the factor by which a was
    sent."""
    kappa = B[:, -1] if biased else np.ones(len(B))
    with np.errstate(divide="ignore", invalid="ignore"):
        asking = B[:, :-1] / kappa[:, None] if biased else B
    return np.stack([kappa[:, None] * A + asking, asking], axis=1), kappa


def _size(asker: Asker) -> float:
    return _BASE if asker.input_bound is None else asker.input_bound / 8


def _allowed(asker: Asker, batch: Array) -> bool:
    return asker.input_bound is None or float(longest_rows(batch).max()) <= asker.input_bound


def _units(rng: np.random.Generator, width: int) -> Array:
    rows = rng.standard_normal((_PROBES, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])
