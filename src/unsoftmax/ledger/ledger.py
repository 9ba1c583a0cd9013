"""Every query goes through here: counted once, by phase, against a budget, its answer checked and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np

from unsoftmax.arrays import Array, all_finite, longest_rows
from unsoftmax.errors import (
    LedgerRefused,
    NonFiniteAnswers,
    OracleFault,
    RequestRefused,
    UsageError,
    VectorAnswers,
)
from unsoftmax.ledger.asker import Check, Exchange
from unsoftmax.ledger.batches import BatchMemory
from unsoftmax.ledger.bill import VERIFICATION, Bill, Progress
from unsoftmax.ledger.journal import Entry, Journal, MemoryJournal, same_sketch, sketch
from unsoftmax.ledger.replay import Replay
from unsoftmax.ledger.views import HasViews
from unsoftmax.oracles import Oracle, Reversed, checked_answers, counts_retries, domain_of
from unsoftmax.outcomes import BudgetSpent, Unresolved

__all__ = ["Ledger"]

_USUAL_VERIFICATION = 240  # checks, certificate and bound of one head; measured: 205 to 230
# stays in the processor's cache between building a batch and answering it; at d = 1536 a recovery takes
# 3 to 6 % longer with batches of 2, 4 or 12 MB, and as long with 8
_BATCH_BYTES = 6 << 20
_WORTHWHILE = 128  # as many sequences as it takes to pay for reading the weights of a wide target ...
_LARGEST_BATCH_BYTES = 32 << 20  # ... within this memory
_KEPT_PER_PHASE = 2  # as many as show whether a phase is still answered alike


class Ledger(HasViews):
    """The only way to the oracle. Bills a batch when it is sent, so the bill equals what the target saw,
    faults included.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> ledger = Ledger(FunctionOracle(lambda X: X[:, -1, 0]), width=2)
    >>> with ledger.phase("values"):
    ...     ledger.ask(np.ones((3, 1, 2)))
    array([1., 1., 1.])
    >>> ledger.bill.total, ledger.bill.by_phase["values"]
    (3, 3)
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        width: int | None = None,
        budget: int | None = None,
        input_bound: float | None = None,
        journal: Journal | None = None,
        listener: Callable[[Progress], None] | None = None,
        before: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """before: what was paid, by phase, before this ledger was opened."""
        self.oracle = oracle
        self.domain = domain_of(oracle.spec, width=width, input_bound=input_bound)
        self.width = self.domain.width
        self.budget = _check_budget(budget)
        self._expected: int | None = None
        self._verification = _USUAL_VERIFICATION
        self._early: list[Exchange] = []
        self._memory = BatchMemory()
        self._journal: Journal = journal if journal is not None else MemoryJournal()
        self._listener = listener
        self._watchers: list[Callable[[str, Array, Array], None]] = []
        self._counts = dict(before)
        self._sends_again = counts_retries(oracle)
        self._retries = 0
        self._replay = Replay()
        self._overflowed: Entry | None = None
        self._position = 0
        self._phase = "unnamed"
        self._kept: dict[str, int] = {}
        self._longest = 0  # rows of a sequence that was answered

    @property
    def input_bound(self) -> float | None:
        """Largest norm of a row; None when there is none."""
        return self.domain.bound

    @property
    def max_length(self) -> int | None:
        """Largest number of rows in a sequence; None when there is none."""
        return self.oracle.spec.max_length

    @property
    def early_queries(self) -> tuple[Exchange, ...]:
        """Two queries of every phase with their answers, kept to be asked again at the end."""
        return tuple(self._early)

    @property
    def bill(self) -> Bill:
        """What was paid until now."""
        return Bill(MappingProxyType(dict(self._counts)), self._retries)

    @property
    def only_replayed(self) -> bool:
        """Whether answers came from the journal of an earlier run, and too few from the target itself to show
        that it is still the same one."""
        return self._replay.unconfirmed

    @property
    def outputs(self) -> int | None:
        """None when an answer is one number, m when it is a vector."""
        return self.oracle.spec.outputs

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Bills everything asked inside the block to `name`."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    def reverse_rows(self) -> None:
        """From now on every sequence is sent with its rows in reverse, on the same bill."""
        self.oracle = Reversed(self.oracle)
        self._early.clear()
        self._kept.clear()

    def watch(self, observer: Callable[[str, Array, Array], None]) -> None:
        """Calls `observer(phase, batch, answers)` after every batch, replayed ones included."""
        self._watchers.append(observer)

    def expect(self, total: int | None, verification: int | None = None) -> None:
        """The present estimate of the whole bill but for verification that is still to come, for progress.

        verification: how much of that there usually is, where it is known better than until now.
        """
        self._expected = total
        if verification is not None:
            self._verification = verification

    def batch_size(self, length: int) -> int:
        """How many sequences of `length` rows make a good batch: 6 MB, up to 32 MB for wide ones, within the
        oracle's own limit."""
        sequence = 8 * length * self.domain.columns
        fitting = max(1, _BATCH_BYTES // sequence, min(_WORTHWHILE, _LARGEST_BATCH_BYTES // sequence))
        limit = self.oracle.spec.max_batch
        return min(fitting, limit) if limit is not None else fitting

    def blank(self, n_queries: int, length: int) -> Array:
        """A batch to fill and ask. Its memory serves again afterwards, unless the oracle keeps the batch."""
        return self._memory.blank((n_queries, length, self.width))

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        """Answers to a batch, (B, N, d) or token ids (B, N): (B,), or (B, m). Sent in one call, or in several
        when the oracle limits batches.

        check: called with what was sent and what came back; what it refuses, by raising, is paid but not
        kept.
        """
        batch = self.domain.checked(batch)
        self._keep_to_bound(batch)
        longest = self.oracle.spec.max_length
        if longest is not None and batch.shape[1] > longest:  # no fault of the target's
            raise Unresolved(
                f"the next query needs sequences of {batch.shape[1]} rows, and the target takes at most "
                f"{longest}; one that takes more would help"
            )
        limit = self.oracle.spec.max_batch
        if limit is None or len(batch) <= limit:
            return self._send(batch, check)
        return np.concatenate([self._send(batch[i : i + limit], check) for i in range(0, len(batch), limit)])

    def _send(self, batch: Array, check: Check | None = None) -> Array:
        n_queries, length = batch.shape[:2]
        width = batch.shape[2] if batch.ndim == 3 else 1  # token ids
        outputs = self.outputs
        if n_queries == 0:
            return np.empty((0,) if outputs is None else (0, outputs))
        self._keep_overflow()
        asked = sketch(batch) if self._journal.durable else (0.0, 0.0)
        entry = self._journal.recall(self._position)
        if entry is None:
            sample = _sample(batch).copy()
            if not all_finite(sample):
                raise _beyond_floats()
            self._afford(n_queries)
            self._journal.prepare(self._position, self._phase, n_queries, 8 * n_queries * (outputs or 1))
            self._count(n_queries)
            before = self._sent_again()
            try:
                answers = checked_answers(self.oracle(batch), n_queries, outputs)
            except OracleFault as fault:
                if not np.isfinite(batch).all():  # no fault of the target's
                    raise _beyond_floats() from fault
                if isinstance(fault, VectorAnswers) and self._position > 0:  # there were numbers before
                    raise OracleFault(str(fault)) from fault
                if isinstance(fault, NonFiniteAnswers):
                    none = np.full((n_queries, *([] if outputs is None else [outputs])), np.nan)
                    retries = self._sent_again() - before
                    self._overflowed = Entry(self._phase, (n_queries, length, width), none, asked, retries)
                self._perhaps_too_long(fault, length)
                raise
            if not (_sample(batch) == sample).all():
                raise OracleFault(
                    "the target wrote into the batch that it was given; let it work on a copy (X = X.copy())"
                )
            if check is not None:
                check(batch, answers)
            entry = Entry(
                self._phase, (n_queries, length, width), answers, asked, self._sent_again() - before
            )
            self._journal.record(self._position, entry)
            self._replay.answered(batch, answers, self.oracle.spec.max_length)
        else:
            if outputs is None and entry.answers.ndim == 2:  # as the run that began it saw, and paid
                raise VectorAnswers("the ledger holds vectors", entry.answers.shape[1], n_queries)
            self._check_replay(entry, (n_queries, length, width), asked)
            self._count(n_queries)
            if not np.isfinite(entry.answers).all():
                self._pass(entry)
                raise NonFiniteAnswers("the target answered these queries with NaN or infinity")
            self._replay.replayed(entry.answers)
        self._pass(entry)
        self._keep(batch, entry.answers)
        self._longest = max(self._longest, length)
        for observer in self._watchers:
            observer(self._phase, batch, entry.answers)
        if self._listener is not None:
            self._listener(Progress(self._phase, self.bill.total, self._foreseen()))
        return entry.answers

    def _perhaps_too_long(self, fault: OracleFault, length: int) -> None:
        """Names the way out where shorter sequences were answered, and nobody told of a limit."""
        told = self.oracle.spec.max_length is not None
        if type(fault) in (OracleFault, RequestRefused) and length > self._longest > 0 and not told:
            rows = "one row" if self._longest == 1 else f"{self._longest} rows"
            raise OracleFault(
                f"{fault}. A sequence of {rows} was answered; if the target takes no longer ones, pass "
                f"longest={self._longest}"
            ) from fault

    def _pass(self, entry: Entry) -> None:
        """The entry's call is over."""
        self._retries += entry.retries
        self._position += 1

    def _keep_overflow(self) -> None:
        """Keeps the last batch, which was answered with NaN or infinity, now that the learner goes on: a
        replay must meet the same answer. Where it ended the run, another run asks that batch again."""
        entry, self._overflowed = self._overflowed, None
        if entry is not None:
            self._journal.record(self._position, entry)
            self._pass(entry)

    def _foreseen(self) -> int | None:
        """The whole bill as far as it is known, for progress: the learner's estimate and the verification
        that usually follows, never less than what is paid."""
        if self._expected is None:
            return None
        to_come = max(0, self._verification - self._counts.get(VERIFICATION, 0))
        return max(self._expected + to_come, self.bill.total)

    def _sent_again(self) -> int:
        """How often the target's adapter has sent a request again until now."""
        return 0 if self._sends_again is None else int(self._sends_again.retries)

    def _check_replay(self, entry: Entry, shape: tuple[int, int, int], asked: tuple[float, float]) -> None:
        if entry.shape != shape or entry.phase != self._phase:
            raise LedgerRefused(
                f"call {self._position} of the ledger is {entry.shape} in phase '{entry.phase}', but this "
                f"run asks {shape} in phase '{self._phase}'; go on with the version and the options that it "
                "was begun with, or use a new ledger"
            )
        if not same_sketch(entry.sketch, asked):
            raise LedgerRefused(
                f"call {self._position} of the ledger (phase '{entry.phase}') asked other queries than this "
                "run does; go on with the version and the options that it was begun with, or use a new "
                "ledger"
            )

    def _keep_to_bound(self, batch: Array) -> None:
        """Learners choose rows within the bound; should one fail to, nothing is sent."""
        if self.input_bound is None or not batch.size:
            return
        longest = float(longest_rows(batch).max())
        if longest > self.input_bound * (1.0 + 1e-9):
            raise Unresolved(
                f"the next query would hold a row of norm {longest:.6g}, rows may be {self.input_bound:g} "
                "long; it was not sent. Allow longer rows, or choose another learner"
            )

    def _afford(self, n_queries: int) -> None:
        paid = sum(self._counts.values())
        if self.budget is not None and paid + n_queries > self.budget:
            foreseen = self._foreseen()
            whole = (
                "" if foreseen is None else f"; the whole job needs about {max(foreseen, paid + n_queries):,}"
            )
            raise BudgetSpent(
                f"{paid:,} of {self.budget:,} queries are paid and the next batch needs {n_queries:,} more "
                f"(phase '{self._phase}'){whole}; raise the budget"
            )

    def _count(self, n_queries: int) -> None:
        self._counts[self._phase] = self._counts.get(self._phase, 0) + n_queries

    def _keep(self, batch: Array, answers: Array) -> None:
        """Keeps a few early queries of every phase, to be asked again at the end."""
        kept = self._kept.get(self._phase, 0)
        for i in range(min(len(batch), _KEPT_PER_PHASE - kept)):
            self._early.append((batch[i].copy(), answers[i].copy()))
            self._kept[self._phase] = self._kept.get(self._phase, 0) + 1


def _beyond_floats() -> Unresolved:
    return Unresolved(
        "the next query would hold numbers beyond the range of float64; a target with weaker or stronger "
        "scores, or an input_bound, would help"
    )


def _sample(batch: Array) -> Array:
    """Some hundred entries from all over the batch: at an odd step, so that no row of all sequences and no
    column is passed over."""
    return batch.reshape(-1)[:: (batch.size // 256) | 1]


def _check_budget(budget: int | None) -> int | None:
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise UsageError(f"budget must be a whole number of queries >= 0, not {budget!r}")
    return int(budget)
