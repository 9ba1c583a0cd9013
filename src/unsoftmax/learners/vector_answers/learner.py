"""Vector answers: every query tells many scores of every head at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim
from unsoftmax.learners.query_bias import bias_alone
from unsoftmax.learners.several_heads.attempt import DependentOutputs, Restart
from unsoftmax.learners.several_heads.class_tests import answer_rounding
from unsoftmax.learners.several_heads.fresh_answers import fresh_deviation
from unsoftmax.learners.several_heads.learner import MultiHeadLearner
from unsoftmax.learners.vector_answers.by_readout import learn_by_readout
from unsoftmax.learners.vector_answers.counts import QUERIES, usual_verification
from unsoftmax.learners.vector_answers.finish import finish_together
from unsoftmax.learners.vector_answers.outputs_again import polished_separation
from unsoftmax.learners.vector_answers.plateau_rows import Separation, find_plateaus, separate_by_plateaus
from unsoftmax.learners.vector_answers.row_answers import VectorResponses, read_vector_values
from unsoftmax.learners.vector_answers.scores import Unmixing, measure_scores
from unsoftmax.learners.vector_answers.unmix_by_copies import separate_by_copies
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Test, Unresolved

__all__ = ["NO_VALUES", "ONE_ROW_VECTOR_TEST", "VectorOutputsLearner"]

ONE_ROW_VECTOR_TEST = Test("one-row answers are affine")

# what one head leaks into another's scores at first; finer when the model turns out wrong
_RANK_TOLERANCES = (1e-5, 1e-8, 1e-10)

_READOUTS = 2  # tried; of attention pooling with two heads one in eight showed wrong heads
_FAR = 1e-6  # relative deviation from which heads found through a readout are others
_SATURATED = 0.01  # shares so near 0 or 1 tell nothing of odds

NO_VALUES = (
    "V = 0: every answer is the constant c, which is recovered, but W and w0 leave no trace in any answer"
)
_CLAIM = Claim(
    title="Vector answers: many scores a query",
    source="this library; extends Theorem 4.1 of arXiv 2601.16873",
    assumptions=(
        Assumption("one-row answers are affine", "fresh rows of three sizes"),
        Assumption(
            "the heads' outputs are independent, for all heads at once",
            "rank of the plateaus' differences; otherwise one readout is learnt first",
        ),
        Assumption(
            "rows may be large enough to saturate the scores, for several heads",
            "ends of a line of asking rows",
        ),
    ),
    queries=QUERIES,
    recovers="W, V and w0 of every head, and c",
    symmetry="order of heads; heads with equal W and w0 come as one",
    verification=usual_verification,
)


@dataclass(frozen=True)
class VectorOutputsLearner:
    """Recovers one or several heads from answers that are vectors.

    Claim: canonical form in float64. Queries: about the parameters divided by m, times 1.0 to 1.9. Assumes:
    see `claim`. Recovers: all heads up to their order. Departs from the paper: it treats scalar answers only.
    Fails when: the heads' outputs overlap; then one readout is learnt as a scalar oracle, and the rest of V
    from it.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    attempts: int = 4

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        V, c = read_vector_values(asker)
        rounding = _check_one_row(asker, V, c, rng)
        respond = VectorResponses(asker, V, c, rounding)
        if V.any() and _looks_like_one_head(respond, rng):
            head = _one_head(respond, rng)
            # several heads look like one where scores are small, as those of short rows are
            one = MultiHead([SingleHead(head.matrix, head.v, head.w0)], head.c)
            limit = max(1e-9, 1e3 * rounding)
            if asker.input_bound is None or fresh_deviation(asker, one, rng).largest <= limit:
                return Learned(head, self.claim)
        if not V.any() and not _answers_move(respond, rng):
            raise NotIdentifiable(NO_VALUES)
        reasons: list[str] = []
        # on a line all heads switch at once, so that no plateaus tell them apart
        for attempt in range(self.attempts if respond.width > 1 else 0):
            tolerance = max(_RANK_TOLERANCES[min(attempt, len(_RANK_TOLERANCES) - 1)], 1e3 * rounding)
            try:
                model = _all_heads(respond, tolerance, rng)
            except (Restart, np.linalg.LinAlgError) as reason:
                reasons.append(str(reason))
                if isinstance(reason, DependentOutputs):
                    break
                continue
            if asker.input_bound is not None:
                with asker.phase("outputs"):
                    model = finish_together(respond, model, asker.input_bound, rng)
            fresh, limit = fresh_deviation(asker, model, rng), max(1e-9, 1e3 * rounding)
            if fresh.largest <= limit or fresh.only_longer(limit):
                return Learned(model.canonical(), self.claim)
            reasons.append(f"fresh queries deviate by {fresh.largest:.1g}")
        return Learned(self._through_readouts(respond, reasons, rng).canonical(), self.claim)

    def _through_readouts(
        self, respond: VectorResponses, reasons: list[str], rng: np.random.Generator
    ) -> MultiHead:
        """The heads that one readout shows; another one where those do not answer fresh queries."""
        for _ in range(_READOUTS):
            try:
                model = learn_by_readout(respond, MultiHeadLearner(), rng)
            except Unresolved as last:
                tried = f"All heads at once: {'; '.join(dict.fromkeys(reasons))}. " if reasons else ""
                raise Unresolved(f"{tried}One readout of the answers: {last.reason}") from None
            fresh, limit = fresh_deviation(respond.asker, model, rng), max(_FAR, 1e3 * respond.rounding)
            if fresh.largest <= limit or fresh.only_longer(limit):
                return model
        raise Unresolved(
            f"the heads that were found deviate by {fresh.largest:.1g} on fresh queries: they could not be "
            "told apart; another seed, or longer rows (input_bound), may help"
        )


def _check_one_row(asker: Asker, V: Array, c: Array, rng: np.random.Generator) -> float:
    """f([x]) = c + Vᵀx on fresh rows; returns the answers' relative rounding."""
    sizes = (
        np.array([0.1, 1.0, 30.0])
        if asker.input_bound is None
        else asker.input_bound * np.array([0.1, 0.5, 1.0])
    )
    rows = rng.standard_normal((3, asker.width))
    rows *= (sizes / np.linalg.norm(rows, axis=1))[:, None]
    with asker.phase(VERIFICATION):
        answers = asker.ask(rows[:, None])
    rounding = answer_rounding(answers.ravel())
    excess = np.abs(answers - c - rows @ V).max(axis=1)
    allowed = max(1e-9, 1e3 * rounding) * (np.abs(c).max() + sizes * float(np.linalg.norm(V)))
    if np.any(excess > allowed):
        worst = int(np.argmax(excess / allowed))
        raise OutsideClass(
            ONE_ROW_VECTOR_TEST,
            f"a row of norm {sizes[worst]:.3g} is answered {excess[worst]:.3g} away from c + Vᵀx (allowed "
            f"{allowed[worst]:.1g})",
        )
    return rounding


def _looks_like_one_head(respond: VectorResponses, rng: np.random.Generator) -> bool:
    """One head's response to a first row a is a multiple of V̄ᵀa, between 0 and 1, at every size. Heads whose
    outputs are multiples of each other share that, but to two copies of the row only one head responds by
    twice the odds."""
    sizes = (
        4.0 ** np.arange(-3.0, 4.0)
        if respond.asker.input_bound is None
        else respond.asker.input_bound * 4.0 ** np.arange(-6.0, 0.0) / 2
    )
    A, B = rng.standard_normal((2, len(sizes), respond.width)) * (sizes / np.sqrt(respond.width))[:, None]
    with respond.asker.phase(VERIFICATION):
        found = respond(A[:, None], B)
    alone = A @ respond.V
    share = np.einsum("qm,qm->q", found, alone) / np.einsum("qm,qm->q", alone, alone)
    off = np.linalg.norm(found - share[:, None] * alone, axis=1)
    size = np.linalg.norm(alone, axis=1) + np.linalg.norm(B @ respond.V, axis=1) + np.linalg.norm(respond.c)
    slack = 1e6 * respond.rounding
    if not (
        np.all(off <= slack * size) and np.all(share > -slack * size) and np.all(share < 1 + slack * size)
    ):
        return False
    open_ = np.flatnonzero((share > _SATURATED) & (share < 1.0 - _SATURATED))
    if not len(open_):
        return True
    A, B, alone, share = A[open_], B[open_], alone[open_], share[open_]
    with respond.asker.phase(VERIFICATION):
        found = respond(np.repeat(A[:, None], 2, axis=1), B)
    off = np.linalg.norm(found - (2.0 * share / (1.0 + share))[:, None] * alone, axis=1)
    return bool(np.all(off <= slack * size[open_]))


def _answers_move(respond: VectorResponses, rng: np.random.Generator) -> bool:
    A, B = rng.standard_normal((2, 6, respond.width))
    with respond.asker.phase(VERIFICATION):
        return bool(np.abs(respond(A[:, None], B)).max() > 1e-12 * (1.0 + np.abs(respond.c).max()))


def _one_head(respond: VectorResponses, rng: np.random.Generator) -> SingleHead:
    left, sizes, _ = np.linalg.svd(respond.V.T, full_matrices=False)
    unmixing = Unmixing(Separation([left[:, sizes > 1e-10 * sizes[0]]]), respond.V)
    try:
        with respond.asker.phase("scores"):
            book = measure_scores(respond, unmixing, rng, max(1e-9, 1e3 * respond.rounding))
    except Restart as reason:
        raise Unresolved(f"one head, but {reason}") from None
    (W,), (w0,), (rank,) = book.solve(unmixing, max(1e-9, 1e3 * respond.rounding))
    if not (np.isfinite(W).all() and np.isfinite(w0).all()):
        raise Unresolved("one head, but some of its weights are lost to rounding; another seed may help")
    return _head(W, respond.V, w0, rank, respond.c)


def _all_heads(respond: VectorResponses, tolerance: float, rng: np.random.Generator) -> MultiHead:
    """Saturation tells the heads apart where rows may be large, copies of rows where they may not."""
    asker = respond.asker
    large = asker.input_bound is None
    if large:
        with asker.phase("plateaus"):
            plateaus = find_plateaus(respond, rng)
        with asker.phase("outputs"):
            separation = separate_by_plateaus(respond, plateaus, rng)
    else:
        with asker.phase("copies"):
            separation = separate_by_copies(respond, rng)
    if separation.condition > 1e8:
        raise DependentOutputs(
            f"the heads' outputs have {separation.joined.shape[1]} dimensions in all, nearly dependent"
        )
    unmixing = Unmixing(separation, respond.V)
    with asker.phase("scores"):
        book = measure_scores(respond, unmixing, rng, tolerance)
    matrices, biases, ranks = book.solve(unmixing, tolerance)
    if large:
        with asker.phase("polish"):
            separation = polished_separation(respond, separation, matrices, biases, rng)
        unmixing = Unmixing(separation, respond.V)
        matrices, biases, ranks = book.solve(unmixing, tolerance)
    if not all(np.isfinite(part).all() for part in (*matrices, *biases)):
        raise Restart("some weights of heads are lost to rounding when outputs are read again")
    heads = [
        _head(W, (T @ G).T, w0, rank)
        for W, w0, rank, T, G in zip(matrices, biases, ranks, separation.blocks, unmixing.values, strict=True)
    ]
    return MultiHead(heads, respond.c)


def _head(W: Array, V: Array, w0: Array, rank: int, c: float | Array = 0.0) -> SingleHead:
    """As factors where the rank is low; without a query bias, or without W, where it is nothing but
    rounding."""
    bias = w0 if float(np.linalg.norm(w0)) > 1e-12 * float(np.linalg.norm(W)) else None
    if bias is not None and bias_alone(W, bias):
        rank = 0
    if rank >= len(W):
        return SingleHead(W, V, bias, c)
    left, values, right = np.linalg.svd(W)
    kept = min(rank, int((values > 1e-10 * values[0]).sum())) if values[0] > 0 else 0
    return SingleHead((left[:, :kept] * values[:kept], right[:kept].T), V, bias, c)
