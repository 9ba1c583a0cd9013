"""How a target can be asked: with rows, ids or one sequence at a time, how long sequences may be, and whether
it answers with numbers, vectors, or a row of many."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.answers import Finding
from unsoftmax.arrays import Array
from unsoftmax.certify.sample import LONGEST as MOST_ROWS
from unsoftmax.errors import OracleFault, VectorAnswers
from unsoftmax.oracles import Oracle, TokenFrame, TokenIds, domain_of, framed
from unsoftmax.oracles.base import as_numbers
from unsoftmax.oracles.function import ask
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.recovery.tokens import LONGEST as MOST_TOKENS

__all__ = ["ANSWER_SHAPE", "REPAIR", "Asked", "limited", "reach", "told_options"]

ANSWER_SHAPE = "answer shape"
_LENGTHS = "length of sequences"
_FEW = 3  # rows of the first sequences
REPAIR = "Repair the target, and run `check` again."
_WRAP = "Repair the target, or put a function around it that takes and returns what is named above."
_ONE_BY_ONE = (
    "The target takes one matrix, and not a batch of them. If the matrix is one sequence (N, d), put a "
    "function around the target: `lambda X: [f(x) for x in X]`. If it holds single rows (n, d), use "
    "`unsoftmax.recover_network`."
)
_ROWS_FIRST = (
    "The target takes the rows of all sequences first, (N, B, d). Put a function around it that swaps the "
    "axes: `lambda X: f(X.swapaxes(0, 1))`."
)
_IDS = "The target takes token ids: pass vocabulary=V, the number of its ids."


@dataclass(frozen=True)
class Asked:
    """The target as it can be asked. options: what a command line must say for that. queries: what showed it.
    way_out: what to do about a target that does not answer."""

    oracle: Oracle
    options: tuple[str, ...] = ()
    queries: int = 0
    findings: tuple[Finding, ...] = ()
    way_out: str = REPAIR


def told_options(vocabulary: int | None, outputs: int | None) -> tuple[str, ...]:
    """The options that say what a user, or the first answers, told."""
    said = (("--vocabulary", vocabulary), ("--outputs", outputs))
    return tuple(f"{option} {number}" for option, number in said if number is not None)


def reach(target: object, width: int | None, outputs: int | None, vocabulary: int | None) -> Asked:
    """The target with the options that its answers ask for: numbers, vectors, or a row of many."""
    oracle = as_oracle(target, outputs=outputs, vocabulary=vocabulary)
    plain = Asked(oracle, told_options(vocabulary, outputs))
    bare = oracle if vocabulary is None else as_oracle(target)  # which may answer in any shape
    raw = getattr(bare, "raw", None) or getattr(bare, "function", None)
    if outputs is not None or bare.spec.outputs is not None or not callable(raw):
        return plain
    d = width if width is not None else oracle.spec.width
    if bare.spec.domain is not None or bare.spec.max_length == 1 or (d is None and vocabulary is None):
        return plain

    def shape_of(length: int) -> tuple[int, ...]:
        batch: Array = np.zeros((2, length, d)) if d is not None else _ids(2, length)
        return as_numbers(ask(raw, batch)).shape

    try:
        shape = shape_of(_FEW)
        more = shape_of(_FEW + 1) if shape == (2, _FEW) else ()
    except OracleFault:  # the ledger says it better
        return replace(plain, queries=2, way_out=REPAIR if d is None else _way_out(raw, d))

    def read(text: str, row: str | None, m: int | None) -> Asked:
        options = (
            *told_options(vocabulary, None),
            *((f"--row {row}",) if row else ()),
            *told_options(None, m),
        )
        queries = 4 if more else 2
        seen = Finding(ANSWER_SHAPE, text, f"2 sequences of {_FEW} rows gave {shape}", queries)
        reader = as_oracle(target, outputs=m, vocabulary=vocabulary, row=row)
        return Asked(reader, options, queries, (seen,))

    if len(shape) == 3 and shape[:2] == (2, _FEW):
        return read("one vector a row", "last", int(shape[2]))
    if more == (2, _FEW + 1):
        return read("one number a row", "last", None)
    if len(shape) == 2 and shape[0] == 2 and shape[1] > 1:
        return read(f"vectors of {shape[1]} numbers", None, int(shape[1]))
    return replace(plain, queries=2, way_out=_ROWS_FIRST if shape[:1] == (_FEW,) else REPAIR)


def _ids(n: int, length: int) -> Array:
    """Sequences of the first token."""
    return np.zeros((n, length), dtype=np.int64)


def limited(asked: Asked, width: int | None, longest: int | None) -> Asked:
    """The same target, and how long its sequences may be: as told, or as one long sequence shows."""
    if longest is not None:
        return _kept_short(asked, longest)
    spec = asked.oracle.spec
    if spec.max_length is not None or spec.log_probabilities or asked.way_out == _ROWS_FIRST:
        return asked
    domain = domain_of(spec, width=width)
    ids = isinstance(domain, TokenIds)
    bottom, top = 1, MOST_TOKENS if ids else MOST_ROWS

    def sequence(length: int) -> Array:
        return _ids(1, length) if ids else np.zeros((1, length, domain.columns))

    fault = _fault_of(asked.oracle, sequence(top))
    if fault is None:
        return replace(asked, queries=asked.queries + 1)
    if _fault_of(asked.oracle, sequence(bottom)) is not None:
        return replace(asked, queries=asked.queries + 2)
    paid = 2
    while top - bottom > 1:
        middle, paid = (bottom + top) // 2, paid + 1
        last = _fault_of(asked.oracle, sequence(middle))
        bottom, top, fault = (middle, top, fault) if last is None else (bottom, middle, last)
    evidence = f"{bottom} were answered; {top} were not: {fault}"
    unit = "token" if ids else "row"
    seen = Finding(_LENGTHS, f"at most {bottom} {unit}{'' if bottom == 1 else 's'}", evidence, paid)
    asked = replace(asked, queries=asked.queries + paid, findings=(*asked.findings, seen))
    return _kept_short(asked, bottom)


def _kept_short(asked: Asked, longest: int) -> Asked:
    oracle = framed(asked.oracle, TokenFrame.of(longest=longest))
    return replace(asked, oracle=oracle, options=(*asked.options, f"--longest {longest}"))


def _fault_of(oracle: Oracle, batch: Array) -> OracleFault | None:
    """None where the target answers, if only with NaN or with vectors: what it says then, others judge."""
    try:
        oracle(batch)
    except VectorAnswers:
        raise
    except OracleFault as fault:
        return fault if type(fault) is OracleFault else None
    return None


def _way_out(raw: Callable[[Array], Any], d: int) -> str:
    """What a target that does not answer a batch of rows may take instead."""
    with suppress(OracleFault):
        if as_numbers(ask(raw, np.zeros((_FEW, d)))).ndim <= 2:
            return _ONE_BY_ONE
    with suppress(OracleFault):
        if as_numbers(ask(raw, _ids(2, _FEW))).shape[:1] == (2,):
            return _IDS
    return _WRAP
