"""A target that answers every row: recovered from its last row, and held against all others."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import numpy as np

from unsoftmax.answers import Finding
from unsoftmax.arrays import Array
from unsoftmax.ledger import Bill
from unsoftmax.models import Model
from unsoftmax.oracles import Oracle
from unsoftmax.oracles.answer_row import AnswerRow
from unsoftmax.outcomes import Status
from unsoftmax.recovery.result import Result

__all__ = ["EVERY_ROW_QUERIES", "held_against_every_row"]

_LENGTHS = (2, 3, 5, 8)  # at which every row is compared
_EACH = 6  # sequences of each length
EVERY_ROW_QUERIES = len(_LENGTHS) * _EACH
_PHASE = "every row"
_MORE = 30.0  # deviations of other rows over those of last rows: the largest of five times as many is larger


class _Sees(Enum):
    """Which rows a row sees."""

    ALL = "every row sees all rows"
    EARLIER = "every row sees itself and the rows before it, as behind a causal mask"


def held_against_every_row(result: Result, oracle: Oracle, seed: int) -> Result:
    """The result of the last row; a success only where every other row is answered by the same function, of
    all rows or of those before it."""
    assert isinstance(oracle, AnswerRow)  # whatever reads one row of several is one
    model = result.model
    if model is None or not result.status.recovered:
        read = Finding(_PHASE, "last", "the last row was read", 0)
        return replace(result, findings=(*result.findings, read))
    if model.outputs is not None:
        oracle = oracle.with_outputs(model.outputs)
    bill = Bill(dict(result.queries.by_phase) | {_PHASE: EVERY_ROW_QUERIES}, result.queries.retries)
    rng = np.random.default_rng([seed, EVERY_ROW_QUERIES])
    off = {sees: [0.0, 0.0] for sees in _Sees}
    bound = oracle.spec.input_bound
    for length in _LENGTHS:
        X = rng.standard_normal((_EACH, length, model.width))
        if bound is not None:
            X *= bound / max(bound, float(np.linalg.norm(X, axis=2).max()))
        answers = oracle.every_row(X)
        for sees, worst in off.items():
            deviations = _deviations(model, X, answers, sees)
            worst[0] = max(worst[0], float(deviations[:, :-1].max()))
            worst[1] = max(worst[1], float(deviations[:, -1].max()))
    sees = min(off, key=lambda each: off[each][0])
    others, last = off[sees]
    allowed = max(result.certificate.allowed if result.certificate is not None else 0.0, _MORE * last)
    if others > allowed:
        reason = (
            "the last row is answered as the recovered model answers it, but others deviate from that "
            f"function by {others:.2g} relative, allowed {allowed:.1g}; row='last' gives that model"
        )
        return replace(
            result, status=Status.OUTSIDE_CLASS, reason=reason, model=None, error_bound=None, queries=bill
        )
    worst_off = f"deviate by at most {max(others, last):.1e} relative"
    evidence = f"all rows of {EVERY_ROW_QUERIES} sequences {worst_off}"
    finding = Finding(_PHASE, sees.value, evidence, EVERY_ROW_QUERIES)
    return replace(result, queries=bill, findings=(*result.findings, finding))


def _deviations(model: Model, X: Array, answers: Array, sees: _Sees) -> Array:
    """(n, N), against what each sequence could show at most."""
    found = np.empty(X.shape[:2])
    for i in range(X.shape[1]):
        rows = X[:, : i + 1] if sees is _Sees.EARLIER else np.roll(X, -1 - i, axis=1)
        off = np.abs(model(rows) - answers[:, i]).reshape(len(X), -1).max(axis=1)
        found[:, i] = off / np.maximum(model.sensitivity(rows), 1e-300)
    return found
