"""A target in a process of its own: the learner sees answers through a pipe and can reach nothing else."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.child_processes import undisturbed_children
from unsoftmax.closing import Closing
from unsoftmax.errors import NonFiniteAnswers, OracleFault, UsageError
from unsoftmax.oracles.base import OracleSpec

__all__ = ["SeparateProcess"]

_SHAPE = struct.Struct("<3q")
_READY = struct.Struct("<4q")  # magic, width, outputs (-1: not told), padding
_PATIENCE = 5.0  # seconds for the child to end by itself before it is killed
_LONGEST_WORDS = 1 << 14  # bytes at the end of what the child printed, of which the last line is shown
_MAGIC = 0x756E736F66746D78  # "unsoftmx": the child speaks this protocol
_REFUSED, _NOT_FINITE = -1, -2  # instead of the number of answers: a message follows


class SeparateProcess(Closing):
    """Runs a named target (`demo:...`, a file, `package.module:callable`) in a child process and asks it
    through pipes.

    >>> with SeparateProcess("demo:single-head?d=3") as oracle:
    ...     oracle(np.zeros((2, 1, 3)))
    array([0., 0.])
    """

    def __init__(self, target: str) -> None:
        # a pipe would fill and stop a target that prints much
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        with undisturbed_children():
            self._child = subprocess.Popen(
                [sys.executable, "-m", "unsoftmax.oracles.separate_process", target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to: IO[bytes] = self._child.stdin
        self._from: IO[bytes] = self._child.stdout
        try:
            magic, width, outputs, _ = _READY.unpack(self._receive(_READY.size))
        except OracleFault as fault:
            self.close()
            raise UsageError(f"the target {target!r} could not be started in a process: {fault}") from fault
        assert magic == _MAGIC
        self.spec = OracleSpec(
            width=None if width < 0 else width, outputs=None if outputs < 0 else outputs, name=target
        )

    def __call__(self, batch: Array, /) -> Array:
        batch = np.ascontiguousarray(batch, dtype=np.float64)
        try:
            self._to.write(_SHAPE.pack(*batch.shape) + batch.tobytes())
            self._to.flush()
        except OSError as error:
            raise OracleFault(f"the target's process has gone: {self._last_words()}") from error
        n, columns, _ = _SHAPE.unpack(self._receive(_SHAPE.size))
        if n < 0:
            fault = NonFiniteAnswers if n == _NOT_FINITE else OracleFault
            raise fault(self._receive(columns).decode(errors="replace"))
        answers = np.frombuffer(self._receive(8 * n * max(columns, 1)), dtype=np.float64)
        return answers.copy() if columns == 0 else answers.reshape(n, columns).copy()

    def close(self) -> None:
        """Ends the child."""
        for stream in (self._to, self._from, self._said):
            with suppress(OSError):
                stream.close()
        self._child.terminate()
        try:
            self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _receive(self, size: int) -> bytes:
        content = self._from.read(size)
        if len(content) < size:
            raise OracleFault(f"the target's process ended: {self._last_words()}")
        return content

    def _last_words(self) -> str:
        self._child.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _LONGEST_WORDS))
        text = self._said.read().decode(errors="replace").strip()
        return text.splitlines()[-1] if text else f"exit status {self._child.returncode}"


def _serve(target: str) -> None:
    """The child's side. Standard output carries answers only; anything printed by the target goes to standard
    error."""
    answers_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    from unsoftmax.errors import UnsoftmaxError
    from unsoftmax.recovery.inputs.targets import as_oracle

    oracle = as_oracle(target)
    width, outputs = (-1 if part is None else part for part in (oracle.spec.width, oracle.spec.outputs))
    answers_to.write(_READY.pack(_MAGIC, width, outputs, 0))
    answers_to.flush()
    while len(head := questions.read(_SHAPE.size)) == _SHAPE.size:
        shape = _SHAPE.unpack(head)
        batch = np.frombuffer(questions.read(8 * shape[0] * shape[1] * shape[2]), dtype=np.float64).reshape(
            shape
        )
        try:
            answers = oracle(batch.copy())
            columns = 0 if answers.ndim == 1 else answers.shape[1]
            answers_to.write(_SHAPE.pack(len(answers), columns, 0) + np.ascontiguousarray(answers).tobytes())
        except UnsoftmaxError as error:
            message = str(error).encode()
            kind = _NOT_FINITE if isinstance(error, NonFiniteAnswers) else _REFUSED
            answers_to.write(_SHAPE.pack(kind, len(message), 0) + message)
        answers_to.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
