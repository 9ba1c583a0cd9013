"""How would `recover` end? The first tests of the learner that it would choose, before anything is learnt."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Clipped, Computed, Exact, Seen, Subject
from unsoftmax.first_look.look import FirstLook
from unsoftmax.learners import Known
from unsoftmax.learners.row_tests import refuse_other_networks, refuse_other_sequences
from unsoftmax.learners.skip import shows_skip
from unsoftmax.ledger import Ledger
from unsoftmax.outcomes import OutsideClass, Stop, Unresolved
from unsoftmax.recovery.explain import FAMILY_TEST, no_learner, rounded_vectors, stay_probabilities

__all__ = ["bends", "beside_a_skip", "obstacle_of"]


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
    if stop is None or isinstance(look.answers, Computed):
        return stop
    if ledger.outputs is not None:
        return rounded_vectors(ledger, rng) or stop
    return stay_probabilities(ledger, rng) or stop


def _first_stop(ledger: Ledger, known: Known, look: FirstLook, rng: np.random.Generator) -> Stop | None:
    rounds = isinstance(look.answers, Computed)
    if not rounds and (ending := no_learner(look)) is not None:
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
    if look.finds_nothing:
        raise OutsideClass(FAMILY_TEST, look.evidence(Subject.FAMILY))
    if isinstance(look.answers, Computed):  # whose rounding these tests know
        refuse_other_sequences(ledger, look.answers.rounding, rng)
        return
    values = look.answers is None or look.answers.exact
    for subject, against in ((Subject.ORDER, Seen.MATTERS), (Subject.COPIES, Seen.COUNT)):
        if values and look.value(subject) == against:
            raise OutsideClass(FAMILY_TEST, look.evidence(subject))


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
