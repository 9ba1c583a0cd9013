"""A skip connection beside attention: found, and taken off the answers before learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.answers import Computed, Exact, Finding, Subject
from unsoftmax.arrays import Array
from unsoftmax.learners import Known
from unsoftmax.learners.skip import find_skip
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.oracles.domain import Space

__all__ = ["look_for_skip", "with_skip"]


def look_for_skip(asker: Asker, known: Known, rng: np.random.Generator) -> Known:
    """The same, with the skip connection where there is one: then nothing else that was learnt from answers
    with it holds any more."""
    answers = known.answers or Exact()
    rows = isinstance(known.domain, Space) and known.max_length != 1
    if not rows or known.skip is not None or not (answers.exact or isinstance(answers, Computed)):
        return known
    before = asker.bill.total
    skip = find_skip(asker, answers, rng)
    if skip is None:
        return known
    text = "a row alone moves the answer otherwise than beside a row of zeros that asks"
    seen = Finding(Subject.SKIP, "present", text, asker.bill.total - before)
    plain = replace(known, constant=None, readout=None, bends=False, refuted=(), look=None)
    return replace(plain, answers=answers, skip=skip, findings=(*known.findings, seen))


def with_skip(model: Model, skip: Array | None) -> Model:
    """The model with the skip connection that was taken off the answers before it was learnt."""
    if skip is None or not isinstance(model, SingleHead | MultiHead):
        return model
    heads = model.heads if isinstance(model, MultiHead) else (model,)
    return MultiHead([SingleHead(head.matrix, head.v, head.w0) for head in heads], model.c, skip)
