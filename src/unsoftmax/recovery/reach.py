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
from unsoftmax.errors import OracleFault, UsageError, VectorAnswers
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
_IDS = "The target takes token ids: pass vocabulary=V (--vocabulary V), the number of its ids."


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
    d = width if width is not None else oracle.spec.width
    raw = getattr(oracle, "raw", None) or getattr(oracle, "function", None)
    if outputs is not None or oracle.spec.outputs is not None or d is None or not callable(raw):
        return Asked(oracle, told_options(vocabulary, outputs))
    if oracle.spec.domain is not None or oracle.spec.max_length == 1:
        return Asked(oracle, told_options(vocabulary, outputs))
    try:
        shape = as_numbers(ask(raw, np.zeros((2, _FEW, d)))).shape
    except OracleFault:  # the ledger says it better
        return Asked(oracle, queries=2, way_out=_way_out(target, raw, d))
    if len(shape) == 2 and shape[0] == 2 and shape[1] > 1:
        seen = Finding(ANSWER_SHAPE, f"vectors of {shape[1]} numbers", f"2 sequences gave {shape}", 2)
        m = int(shape[1])
        return Asked(as_oracle(target, outputs=m), (f"--outputs {m}",), 2, (seen,))
    if len(shape) == 3 and shape[:2] == (2, _FEW):
        seen = Finding(ANSWER_SHAPE, "one vector a row", f"2 sequences of 3 rows gave {shape}", 2)
        m = int(shape[2])
        options = ("--row last", f"--outputs {m}")
        return Asked(as_oracle(target, outputs=m, row="last"), options, 2, (seen,))
    return Asked(oracle, queries=2)


def limited(asked: Asked, width: int | None, longest: int | None) -> Asked:
    """The same target, and how long its sequences may be: as told, or as one long sequence shows."""
    if longest is not None:
        return _kept_short(asked, longest)
    spec = asked.oracle.spec
    if spec.max_length is not None or spec.log_probabilities:
        return asked
    domain = domain_of(spec, width=width)
    ids = isinstance(domain, TokenIds)
    bottom, top = 1, MOST_TOKENS if ids else MOST_ROWS

    def sequence(length: int) -> Array:
        return np.zeros((1, length), dtype=np.int64) if ids else np.zeros((1, length, domain.columns))

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


def _way_out(target: object, raw: Callable[[Array], Any], d: int) -> str:
    """What a target that does not answer a batch of rows may take instead."""
    with suppress(OracleFault):
        if as_numbers(ask(raw, np.zeros((_FEW, d)))).ndim <= 2:
            return _ONE_BY_ONE
    try:
        as_oracle(target, vocabulary=1)(np.zeros((2, _FEW), dtype=np.int64))
    except VectorAnswers:
        return _IDS
    except (OracleFault, UsageError):
        return _WRAP
    return _IDS
