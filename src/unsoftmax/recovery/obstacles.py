"""How would `recover` end? The first tests of the learner that it would choose, before anything is learnt."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Clipped, Computed, Constant, Exact, Seen, Subject
from unsoftmax.arrays import shortened
from unsoftmax.first_look.look import FirstLook
from unsoftmax.learners import Known
from unsoftmax.learners.one_head.checks import check_constant
from unsoftmax.learners.one_head.exact import nothing_moves
from unsoftmax.learners.row_tests import refuse_other_networks, refuse_other_sequences
from unsoftmax.learners.skip import shows_skip
from unsoftmax.learners.vector_answers.learner import NO_VALUES
from unsoftmax.ledger import Ledger
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Stop, Unresolved
from unsoftmax.recovery.explain import (
    FAMILY_TEST,
    against_every_family,
    by_batch,
    no_learner,
    rounded_vectors,
    stay_probabilities,
)

__all__ = ["bends", "beside_a_skip", "obstacle_of"]

_FEW = 4  # rows: attention answers no two of them alike


def bends(known: Known, look: FirstLook) -> bool:
    """Whether single rows are answered along a curve: short rows by what the answers are, or those of the
    look, which are long where answers carry errors."""
    return known.bends or (look.value(Subject.SINGLE_ROWS) == Seen.CURVED and known.max_length != 1)


def beside_a_skip(ledger: Ledger, look: FirstLook, rng: np.random.Generator) -> bool:
    """Whether what looks like no known family is attention beside a skip connection."""
    ordered = look.value(Subject.ORDER) != Seen.MATTERS and look.value(Subject.COPIES) != Seen.COUNT
    return look.finds_nothing and ordered and shows_skip(ledger, look.answers or Exact(), rng)


def obstacle_of(ledger: Ledger, known: Known, look: FirstLook, rng: np.random.Generator) -> Stop | None:
    """None where nothing stands in the way of trying."""
    stop = _first_stop(ledger, known, look, rng)
    if stop is None or isinstance(stop, NotIdentifiable) or isinstance(look.answers, Computed):
        return stop
    if ledger.outputs is not None:
        return rounded_vectors(ledger, rng) or stop
    return stay_probabilities(ledger, rng) or stop


def _first_stop(ledger: Ledger, known: Known, look: FirstLook, rng: np.random.Generator) -> Stop | None:
    rounds = isinstance(look.answers, Computed)
    if (ending := by_batch(look) if rounds else no_learner(look)) is not None:
        return ending
    try:
        with ledger.phase("class tests"):
            if bends(known, look):
                _refuse_curves(ledger, look, rng)
            else:
                _refuse_heads(ledger, look, rng)
    except Stop as stop:
        return stop
    return None


def _refuse_heads(ledger: Ledger, look: FirstLook, rng: np.random.Generator) -> None:
    if evidence := against_every_family(look):
        raise OutsideClass(FAMILY_TEST, evidence)
    if isinstance(look.answers, Computed):  # whose rounding these tests know
        refuse_other_sequences(ledger, look.answers.rounding, rng)
        return
    if ledger.outputs is not None:
        _refuse_one_vector(ledger, rng)
    if isinstance(look.answers, Constant):
        _refuse_constant(ledger, look.answers.value, rng)


def _refuse_constant(ledger: Ledger, value: float, rng: np.random.Generator) -> None:
    """Single rows never move the answer. Nor does a sequence, unless readouts of several heads cancel."""
    try:
        check_constant(ledger, value, rng)
    except OutsideClass:
        refuse_other_sequences(ledger, 0.0, rng)
        return
    raise nothing_moves(ledger, value)


def _refuse_one_vector(ledger: Ledger, rng: np.random.Generator) -> None:
    """One vector as the answer to everything."""
    rows = shortened(rng.standard_normal((_FEW, ledger.width)), ledger.input_bound)
    answers = ledger.ask(rows[:, None])
    if (answers == answers[0]).all():
        raise NotIdentifiable(NO_VALUES)


def _refuse_curves(ledger: Ledger, look: FirstLook, rng: np.random.Generator) -> None:
    """A block where answers are vectors, else a ReLU network on top of one head."""
    answers = look.answers
    if ledger.outputs is None:
        try:
            refuse_other_networks(ledger, 0.0 if answers is None else answers.rounding, rng)
        except OutsideClass as refuted:
            if isinstance(answers, Clipped):  # limits may hide the network
                raise Unresolved(f"{refuted.reason}; and answers are {answers.name}") from None
            raise
        return
    if isinstance(answers, Computed):
        from unsoftmax.learners.computed_block.learner import refuse_other_blocks as refuse_computed

        refuse_computed(ledger, answers.format, rng)
        return
    from unsoftmax.learners.encoder_block.learner import refuse_other_blocks

    refuse_other_blocks(ledger, rng)
