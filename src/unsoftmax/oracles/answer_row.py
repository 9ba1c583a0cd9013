"""Targets that answer every row of a sequence, (B, N, m) or (B, N): one row of it, or their mean, and a
readout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.base import OracleSpec, as_numbers, checked_answers
from unsoftmax.oracles.function import ask
from unsoftmax.oracles.identity import content_fingerprint

__all__ = ["AnswerRow", "Row", "check_row"]

Row = Literal["last", "first", "mean", "all"]


def check_row(row: object) -> Row | None:
    """The name of a row, or a `UsageError`.

    >>> check_row("last")
    'last'
    """
    if row is None:
        return None
    for name in get_args(Row):
        if row == name:
            return name  # type: ignore[no-any-return]
    raise UsageError(f"row must be one of {', '.join(get_args(Row))}, not {row!r}")


class AnswerRow:
    """One answer per sequence out of (B, N, m), or out of (B, N) where a row is named. readout: (m,) for one
    number, (m, k) for vectors.

    'all' reads all rows one after another, so every sequence must have the length of the first one asked;
    `every_row` keeps them apart.

    >>> oracle = AnswerRow(lambda X: 2.0 * X, OracleSpec(width=2), "last", np.array([1.0, 1.0]))
    >>> oracle(np.ones((1, 3, 2))), oracle.spec.outputs
    (array([4.]), None)
    """

    def __init__(
        self,
        function: Callable[[Array], Any],
        spec: OracleSpec,
        row: Row | None = None,
        readout: Array | None = None,
    ) -> None:
        self._function = function
        self._inner = spec
        self._row = row
        self._readout = None if readout is None else np.array(readout, dtype=np.float64)
        if self._readout is not None and self._readout.ndim not in (1, 2):
            raise UsageError(f"the readout must be (m,) or (m, k), not {self._readout.shape}")
        self._outputs = self._read_outputs(spec)
        self.spec = replace(spec, outputs=self._outputs, fingerprint=self._fingerprint(spec))

    def with_outputs(self, outputs: int) -> AnswerRow:
        """The same rows, read as holding that many numbers."""
        return AnswerRow(self._function, replace(self._inner, outputs=outputs), self._row, self._readout)

    def _read_outputs(self, spec: OracleSpec) -> int | None:
        if self._readout is not None:
            return None if self._readout.ndim == 1 else int(self._readout.shape[1])
        return spec.outputs

    def _fingerprint(self, spec: OracleSpec) -> str | None:
        if spec.fingerprint is None:
            return None
        read = "" if self._readout is None else content_fingerprint({"readout": self._readout})
        return f"{spec.fingerprint}:row={self._row}:{read}"

    def __call__(self, batch: Array, /) -> Array:
        raw = self._raw(batch)
        if self._row is not None and (raw.ndim == 3 or raw.shape == batch.shape[:2]):
            raw = _rows_of(raw, self._row)
        elif self._row is not None:
            raise UsageError(
                f"row={self._row!r} is for targets that answer every row, (B, N, m); this one answered "
                f"{raw.shape}; leave it out"
            )
        return checked_answers(self._read(raw), len(batch), self._outputs)

    def every_row(self, batch: Array) -> Array:
        """(B, N, m), or (B, N) behind a readout that makes one number of each."""
        rows = self._read(self._raw(batch))
        expected = batch.shape[:2] if self._outputs is None else (*batch.shape[:2], rows.shape[-1])
        if rows.shape != expected or not np.isfinite(rows).all():
            raise OracleFault(f"the target answered a batch of shape {batch.shape} with {rows.shape}")
        return rows

    def _raw(self, batch: Array) -> Array:
        return np.asarray(as_numbers(ask(self._function, batch, "(B, N, m)")), dtype=np.float64)

    def _read(self, raw: Array) -> Array:
        if self._readout is None:
            return raw
        if raw.shape[-1] != len(self._readout):
            raise OracleFault(
                f"the readout has {len(self._readout)} entries, and the target answers {raw.shape[-1]} "
                "numbers"
            )
        return np.asarray(raw @ self._readout)


def _rows_of(answers: Array, row: Row) -> Array:
    match row:
        case "last":
            return answers[:, -1]
        case "first":
            return answers[:, 0]
        case "mean":
            return np.asarray(answers.mean(axis=1))
        case "all":
            return answers.reshape(len(answers), -1)
