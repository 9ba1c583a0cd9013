"""A target that answers every row: recovered from its last row, and held against all others."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from unsoftmax.answers import Finding
from unsoftmax.arrays import Array, largest
from unsoftmax.certify.sample import draw_sample
from unsoftmax.ledger import Bill
from unsoftmax.models import Model
from unsoftmax.oracles import Oracle
from unsoftmax.oracles.answer_row import AnswerRow
from unsoftmax.oracles.domain import Ball, Space
from unsoftmax.outcomes import Status
from unsoftmax.recovery.result import Result

__all__ = ["EVERY_ROW_QUERIES", "held_against_every_row"]

EVERY_ROW_QUERIES = 180  # at most: as many as a certificate draws
_ROWS = 8  # of a sequence that are compared, the first and the last among them; the others are drawn
_PHASE = "every row"
_MORE = 30.0  # deviations of other rows over those of last rows: the largest of seven times as many is larger
_LEAST = 1e-6  # of what the shortest ordinary row shows: rows of zeros show nothing


class _Sees(Enum):
    """Which rows a row sees."""

    ALL = "every row sees all rows"
    EARLIER = "every row sees itself and the rows before it, as behind a causal mask"


def held_against_every_row(
    result: Result, oracle: Oracle, seed: int, input_bound: float | None = None, longest: int | None = None
) -> Result:
    """The result of the last row; a success only where every other row is answered by the same function, of
    all rows or of those before it: on fresh sequences, drawn as those of a certificate.

    input_bound: largest norm of a row that may be sent, where the target itself does not tell one. longest:
    the most rows of a sequence, likewise.
    """
    assert isinstance(oracle, AnswerRow)  # whatever reads one row of several is one
    model = result.model
    if model is None or not result.status.recovered:
        read = Finding(_PHASE, "last", "the last row was read", 0)
        return replace(result, findings=(*result.findings, read))
    if result.answers is not None and result.answers.repeats > 1:
        reason = (
            f"single answers are wrong by chance ({result.answers.name}), so other rows are not held against "
            "the model; row='last' gives that model"
        )
        return replace(result, status=Status.UNRESOLVED, reason=reason, model=None, error_bound=None)
    if model.outputs is not None:
        oracle = oracle.with_outputs(model.outputs)
    rng = np.random.default_rng([seed, EVERY_ROW_QUERIES])
    bound = oracle.spec.input_bound if input_bound is None else input_bound
    domain = Space(model.width) if bound is None else Ball(model.width, bound)
    limit = oracle.spec.max_length if longest is None else longest
    sample = draw_sample(model, domain, rng, max_length=limit)
    ordinary = np.full((1, 1, model.width), sample.sizes[0] / np.sqrt(model.width))
    ruler = _Ruler(model, result, _LEAST * float(model.sensitivity(ordinary)[0]))
    asked = 0
    for X in sample.batches:
        ruler.see(X, oracle.every_row(X), _some_rows(X.shape[1], rng))
        asked += len(X)
    sees = min(_Sees, key=lambda each: ruler.others[each])
    off, allowed = ruler.others[sees], max(ruler.stated, _MORE * ruler.last)
    bill = Bill(dict(result.queries.by_phase) | {_PHASE: asked}, result.queries.retries)
    if off > allowed:
        reason = (
            "the last row is answered as the recovered model answers it, but others deviate from that "
            f"function by {off:.2g} relative, allowed {allowed:.1g}; row='last' gives that model"
        )
        return replace(
            result, status=Status.OUTSIDE_CLASS, reason=reason, model=None, error_bound=None, queries=bill
        )
    evidence = (
        f"up to {_ROWS} rows each of {asked} sequences, drawn as the certificate's, are off by at most "
        f"{max(off, ruler.last):.1e} relative"
    )
    finding = Finding(_PHASE, sees.value, evidence, asked)
    return replace(result, queries=bill, findings=(*result.findings, finding))


def _some_rows(length: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Places of rows, the last one at the end."""
    if length <= _ROWS:
        return np.arange(length)
    between = 1 + rng.permutation(length - 2)[: _ROWS - 2]
    return np.concatenate([[0], np.sort(between), [length - 1]])


class _Ruler:
    """How far rows are from the model, beyond what rounding and the answers' own errors explain."""

    def __init__(self, model: Model, result: Result, least: float) -> None:
        self.model = model
        self.least = least  # what any sequence shows
        told = result.certificate
        self.stated = 0.0 if told is None else max(told.allowed, told.resolution)
        self._tolerance = 0.0 if told is None else told.tolerance
        self._deviation = None if result.answers is None else result.answers.deviation
        self.others = dict.fromkeys(_Sees, 0.0)
        self.last = 0.0

    def see(self, X: Array, answers: Array, places: NDArray[np.intp]) -> None:
        """Compares these rows of the answers to X; the last row is the last of them."""
        for sees in _Sees:
            for i in places[:-1]:
                rows = X[:, : i + 1] if sees is _Sees.EARLIER else np.roll(X, -1 - i, axis=1)
                self.others[sees] = max(self.others[sees], self._worst(rows, answers[:, i]))
        self.last = max(self.last, self._worst(X, answers[:, -1]))

    def _worst(self, rows: Array, answers: Array) -> float:
        values = self.model(rows)
        off = np.abs(values - answers) if self._deviation is None else self._deviation(answers, values)
        scale = np.maximum(self.model.sensitivity(rows), self.least)
        explained = self._tolerance + self.model.rounding(rows, values, scale)
        return float((np.maximum(largest(off) - explained, 0.0) / scale).max())
