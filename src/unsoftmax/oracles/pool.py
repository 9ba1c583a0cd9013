"""Several copies of one target as one oracle: every batch is cut into pieces that the copies answer at the
same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.closing import Closing
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.base import Oracle, checked_answers

__all__ = ["Pool"]


class Pool(Closing):
    """Answers come from whichever copy is free, in the order of the questions.

    A batch is cut into pieces of `piece` sequences, whatever the number of copies. So a pool of eight gives
    the same bits as a pool of one, provided that a copy's answers depend on nothing but the piece. Copies
    must be independent of each other: models, separate processes, servers; one that is not safe to call from
    several threads is still called by one thread at a time.

    >>> from unsoftmax.oracles import FunctionOracle, OracleSpec
    >>> copies = [FunctionOracle(lambda X: X[:, -1, 0], OracleSpec(width=2)) for _ in range(3)]
    >>> with Pool(copies, piece=2) as pool:
    ...     pool(np.arange(10.0).reshape(5, 1, 2))
    array([0., 2., 4., 6., 8.])
    """

    def __init__(self, copies: Sequence[Oracle], *, piece: int = 64) -> None:
        if not copies:
            raise UsageError("a pool needs at least one copy of the target")
        if isinstance(piece, bool) or not isinstance(piece, int | np.integer) or piece < 1:
            raise UsageError(f"piece must be a whole number of sequences >= 1, not {piece!r}")
        specs = [replace(copy.spec, name="") for copy in copies]
        for other in specs[1:]:
            if other != specs[0]:
                raise UsageError(
                    f"the copies of a pool must tell the same of themselves, not {specs[0]} and {other}"
                )
        limit = specs[0].max_batch
        self.copies = tuple(copies)
        self.piece = int(piece) if limit is None else min(int(piece), limit)
        self.spec = replace(
            copies[0].spec, max_batch=None, name=f"{len(copies)} copies of {copies[0].spec.name}"
        )
        self._free: SimpleQueue[Oracle] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)
        self._threads = (
            ThreadPoolExecutor(len(copies), thread_name_prefix="pool") if len(copies) > 1 else None
        )

    def __call__(self, batch: Array, /) -> Array:
        pieces = [batch[i : i + self.piece] for i in range(0, len(batch), self.piece)]
        if self._threads is None or len(pieces) == 1:
            return np.concatenate([self._answer(piece) for piece in pieces])
        waiting = [self._threads.submit(self._answer, piece) for piece in pieces]
        try:
            return np.concatenate([answer.result() for answer in waiting])
        except BaseException:
            for answer in waiting:
                answer.cancel()
            raise

    def _answer(self, piece: Array) -> Array:
        copy = self._free.get()
        try:
            return checked_answers(copy(np.ascontiguousarray(piece)), len(piece), self.spec.outputs)
        except OracleFault:
            raise
        except (Exception, SystemExit) as error:
            raise OracleFault(
                f"a copy of the pool raised {type(error).__name__} on a batch of shape {piece.shape}: {error}"
            ) from error
        finally:
            self._free.put(copy)

    def close(self) -> None:
        """Ends the threads; the copies stay open."""
        if self._threads is not None:
            self._threads.shutdown()
