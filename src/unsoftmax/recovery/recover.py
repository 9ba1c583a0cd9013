"""`recover`: learn, certify, bound the error, and say how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from unsoftmax.answers import Exact, Finding, Seen, Within
from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError, VectorAnswers
from unsoftmax.families import Family
from unsoftmax.learners import Known, Learner
from unsoftmax.ledger import Ledger, Progress, open_journal
from unsoftmax.oracles import Oracle, TokenFrame, TokenIds, framed
from unsoftmax.oracles.base import check_width
from unsoftmax.oracles.logits import Logits
from unsoftmax.outcomes import Status
from unsoftmax.recovery.answer_range import AnswerRange
from unsoftmax.recovery.attempt import Prepare
from unsoftmax.recovery.choose import family_named, learner_named
from unsoftmax.recovery.inputs.known_rows import read_embeddings
from unsoftmax.recovery.inputs.own_ids import checked_id_sequences
from unsoftmax.recovery.inputs.own_sequences import checked_sequences
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.recovery.inputs.token_targets import with_vocabulary
from unsoftmax.recovery.inputs.vocabulary import vocabulary_of
from unsoftmax.recovery.moderate_rows import SHORT_PROBABILITIES, ModerateRows, moderate_rows
from unsoftmax.recovery.result import Result
from unsoftmax.recovery.run import run
from unsoftmax.replaced_names import replaced_names

__all__ = ["Job", "Options", "checked_tolerance", "job_of", "recover", "recover_from"]


_SHAPE = "answer shape"  # the subject of a finding, and the phase of its queries
_STREAM = 0x10617  # keeps this randomness apart from that of targets made from the same small seed
_LOGITS = Finding("answers", "probabilities", "told by the user: the model gives their logits", 0)


class Options(TypedDict, total=False):
    """The keywords of `recover`, which explains them."""

    width: int | None
    family: str
    budget: int | None
    seed: int
    ledger: str | Path | None
    tolerance: float | None
    input_bound: float | None
    outputs: int | None
    learner: Learner | str | None
    progress: Callable[[Progress], None] | None
    vocabulary: int | None
    embeddings: object
    sequences: object
    row: str | None
    readout: object
    probabilities: bool
    prefix: Sequence[int]
    suffix: Sequence[int]
    padding: int | None
    length: int | None
    longest: int | None


@dataclass(frozen=True)
class Job:
    """What a recovery is to do, as a user says it: the keywords of `recover`, checked. seen: how the target
    showed that it answers with vectors, where nobody said so. moderate: what was found of the length of rows,
    where answers are probabilities."""

    width: int | None = None
    family: Family | None = None
    budget: int | None = None
    seed: int = 0
    ledger: str | Path | None = None
    tolerance: float | None = None
    input_bound: float | None = None
    outputs: int | None = None
    learner: Learner | None = None
    progress: Callable[[Progress], None] | None = None
    vocabulary: int | None = None
    embeddings: object = None
    sequences: object = None
    row: str | None = None
    readout: object = None
    probabilities: bool = False
    frame: TokenFrame = field(default_factory=TokenFrame)
    seen: VectorAnswers | None = None
    moderate: ModerateRows | None = None

    def __post_init__(self) -> None:
        seed = self.seed
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise UsageError(f"seed must be a whole number >= 0, not {seed!r}")
        checked_tolerance(self.tolerance)
        if self.row == "all" and self.vocabulary is not None:
            raise UsageError("row='all' is for targets that take rows of numbers; pass row='last'")

    def books(self, oracle: Oracle, stack: ExitStack, kind: str) -> Ledger:
        """The ledger of a run of this kind, over its file if it has one."""
        journal = None
        if self.ledger is not None:
            # refuses wrong usage before a file is begun for it
            Ledger(oracle, width=self.width, budget=self.budget, input_bound=self.input_bound)
            options: dict[str, object] = {
                "width": self.width or oracle.spec.width,
                "tolerance": self.tolerance,
                "outputs": None if self.seen is not None else self.outputs or oracle.spec.outputs,
                "input_bound": self.input_bound,
            }
            if oracle.spec.domain is not None:
                options |= {"vocabulary": oracle.spec.domain.width, "embeddings": self.embeddings is not None}
            if self.sequences is not None:
                options["sequences"] = True
            if not self.frame.empty:
                options["frame"] = repr(self.frame)
            learner = self.learner if self.learner is not None else f"{kind}: {self.family or 'auto'}"
            journal = stack.enter_context(
                open_journal(self.ledger, oracle, seed=int(self.seed), learner=learner, options=options)
            )
        return Ledger(
            oracle,
            width=self.width,
            budget=self.budget,
            input_bound=self.input_bound,
            journal=journal,
            listener=self.progress,
            before=self._asked_before(),
        )

    def _asked_before(self) -> dict[str, int]:
        """Queries that were sent before the ledger was opened, by phase."""
        shape = {} if self.seen is None else {_SHAPE: self.seen.queries}
        return shape if self.moderate is None else shape | self.moderate.billed

    def oracle(self, target: object) -> Oracle:
        """Where the target's answers come from, read as the user says."""
        outputs = self.outputs if self.seen is None else self.seen.outputs
        return as_oracle(
            target,
            outputs=outputs,
            vocabulary=self.vocabulary,
            row=self.row,
            readout=self.readout,
            probabilities=self.probabilities,
        )

    def known(self) -> Known:
        """What the user told of the answers."""
        if self.tolerance is None and self.moderate is not None and self.moderate.tolerance is not None:
            tau = self.moderate.tolerance
            short = Finding("answers", "tolerance", f"logits of short numbers, off by up to {tau:.1g}", 0)
            return Known(answers=Within(tau), told=True, findings=(short,))
        if self.tolerance is None:
            return Known()
        answers = Exact() if self.tolerance == 0.0 else Within(float(self.tolerance))
        told = Finding("answers", "tolerance", f"told by the user: off by up to {self.tolerance:g}", 0)
        return Known(answers=answers, told=True, findings=(told,))


def recover(
    target: object,
    *,
    width: int | None = None,
    family: str = "auto",
    budget: int | None = None,
    seed: int = 0,
    ledger: str | Path | None = None,
    tolerance: float | None = None,
    input_bound: float | None = None,
    outputs: int | None = None,
    learner: Learner | str | None = None,
    progress: Callable[[Progress], None] | None = None,
    vocabulary: int | None = None,
    embeddings: object = None,
    sequences: object = None,
    row: str | None = None,
    readout: object = None,
    probabilities: bool = False,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
    padding: int | None = None,
    length: int | None = None,
    longest: int | None = None,
) -> Result:
    """Recovers the parameters of `target` from its answers alone, with a certificate and the bill.

    target: a callable (B, N, d) -> (B,), an oracle, a model, 'demo:...', a .safetensors file, or
    'package.module:callable'.
    width: d, if the target does not tell it. budget: largest number of queries, earlier runs on the same
    ledger included. seed: all randomness.
    ledger: a file that keeps every answer; a run that was stopped goes on from it without asking anything
    again.
    tolerance: how far an answer may be off. None: measured, see `Result.findings`.
    input_bound: largest norm of a row that may be sent. learner: a particular theorem instead of the default,
    as an object or by name ('theorem-4.1').
    progress: called after every batch with a `Progress`.
    vocabulary: number of token ids, for a target that takes integer arrays (B, N) instead of rows.
    embeddings: the row of every token (V, d), a .npy file of them, or a model of transformers (a folder, a
    .safetensors file, a state dict), if they are known; W itself is recovered then.
    sequences: the user's own, (n, N, d), or rows (n, d), or a .npy file of them; the certificate compares the
    model on these as well. For token ids: lists of ids, an array (n, N), a .npy file or a text file with the
    ids of one sequence on each line. row: for a target that answers every row, (B, N, m): read the last,
    first or mean; 'all': the last one, and the model must answer all others too. readout: weights (m,) that
    make one number of a vector answer, or a .npy file.
    probabilities: True if answers are probabilities, a sigmoid or a softmax of logits; the model of the
    logits is recovered then.
    prefix, suffix: fixed token ids around every sequence, such as CLS and SEP. padding, length: the token id
    that fills sequences up to this length. longest: the most rows, or tokens with fixed ones included, of a
    sequence.

    >>> import numpy as np, unsoftmax
    >>> hidden = unsoftmax.random_single_head(6, seed=1)
    >>> result = unsoftmax.recover(lambda X: hidden(X), width=6)
    >>> str(result.status), hidden.distance(result.model) < 1e-12
    ('EXACT', True)
    """
    job = job_of(
        width=width,
        family=family,
        budget=budget,
        seed=seed,
        ledger=ledger,
        tolerance=tolerance,
        input_bound=input_bound,
        outputs=outputs,
        learner=learner,
        progress=progress,
        vocabulary=vocabulary,
        embeddings=embeddings,
        sequences=sequences,
        row=row,
        readout=readout,
        probabilities=probabilities,
        prefix=prefix,
        suffix=suffix,
        padding=padding,
        length=length,
        longest=longest,
    )
    return recover_from(target, job)


def job_of(
    *,
    family: str = "auto",
    learner: Learner | str | None = None,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
    padding: int | None = None,
    length: int | None = None,
    longest: int | None = None,
    **options: Any,
) -> Job:
    """The job that keywords of `recover` describe, checked."""
    frame = TokenFrame.of(prefix, suffix, padding, length, longest)
    return Job(family=family_named(family), learner=learner_named(learner), frame=frame, **options)


def recover_from(
    target: object,
    job: Job,
    prepare: Prepare | None = None,
    kind: str = "recover",
    watch: Callable[[str, Array, Array], None] | None = None,
) -> Result:
    """`recover` for a job. prepare: what else to find out before learning; see `recovery.run`. watch: sees
    every batch; see `Ledger.watch`. A target whose first answers are vectors, though nobody said so, is begun
    again with as many outputs as they have."""
    with replaced_names():
        return _recover_rows(target, job, prepare, kind, watch)


def _recover_rows(
    target: object,
    job: Job,
    prepare: Prepare | None,
    kind: str,
    watch: Callable[[str, Array, Array], None] | None,
) -> Result:
    if job.row == "all":
        from unsoftmax.recovery.every_row import EVERY_ROW_QUERIES, held_against_every_row

        if job.probabilities:
            raise UsageError("probabilities are read of one row; pass row='last' with them")
        left = None if job.budget is None else max(0, job.budget - EVERY_ROW_QUERIES)
        job = replace(job, row="last", budget=left)
        result = _recover_rows(target, job, prepare, kind, watch)
        whole = job.oracle(target)
        return held_against_every_row(result, whole, int(job.seed), job.input_bound, job.frame.longest)
    try:
        return _recover(target, job, prepare, kind, watch)
    except VectorAnswers as vectors:
        if job.outputs is not None or job.seen is not None:
            raise
        seen = vectors
    shape, evidence = f"vectors of {seen.outputs} numbers", "the target's first answers"
    result = _recover(target, replace(job, seen=seen), prepare, kind, watch)
    return replace(result, findings=(Finding(_SHAPE, shape, evidence, seen.queries), *result.findings))


def _recover(
    target: object,
    job: Job,
    prepare: Prepare | None,
    kind: str,
    watch: Callable[[str, Array, Array], None] | None,
) -> Result:
    oracle, found = _reached(target, job)
    if isinstance(oracle, Logits):
        job = _with_moderate_rows(oracle, job)
        found = (*found, *(() if job.moderate is None else (job.moderate.finding,)), _LOGITS)
    oracle = framed(oracle, job.frame)
    with ExitStack() as stack:
        if isinstance(target, str | Path) and callable(close := getattr(oracle, "close", None)):
            stack.callback(close)
        ledger = job.books(oracle, stack, kind)
        ledger.watch(seen := AnswerRange())
        if watch is not None:
            ledger.watch(watch)
        if job.learner is None and _speaks(oracle, job.family):
            from unsoftmax.recovery.language_model import recover_language_model

            return recover_language_model(ledger, int(job.seed))
        if isinstance(ledger.domain, TokenIds):
            result = _recover_ids(ledger, job)
            return replace(result, findings=(*found, *result.findings))
        if job.embeddings is not None or job.family is Family.TOKENS:
            raise UsageError("the target takes rows, not token ids; pass vocabulary=V for one that takes ids")
        own = checked_sequences(job.sequences, ledger.width, ledger.input_bound)
        told = replace(job.known(), sequences=own)
        result = run(ledger, told, job.family, job.learner, int(job.seed), prepare)
        if not result.status.recovered and (range_of := seen.finding()) is not None:
            found = (*found, range_of)
            if range_of.value == Seen.CLASSES and result.status is Status.UNRESOLVED:  # not merely coarse
                result = replace(result, reason=range_of.evidence)
        if job.moderate is not None and job.moderate.short and result.status is Status.UNRESOLVED:
            result = replace(result, reason=f"{SHORT_PROBABILITIES}. Read as they are: {result.reason}")
        return replace(result, findings=(*found, *result.findings))


def _with_moderate_rows(oracle: Logits, job: Job) -> Job:
    """The job with a bound on rows within which probabilities do not saturate."""
    if oracle.spec.domain is not None:
        return job
    width = check_width(job.width if job.width is not None else oracle.spec.width)
    bound = job.input_bound if job.input_bound is not None else oracle.spec.input_bound
    rng = np.random.default_rng([_STREAM, int(job.seed)])
    moderate = moderate_rows(oracle, width, bound, rng)
    return replace(job, input_bound=moderate.bound, moderate=moderate)


def _reached(target: object, job: Job) -> tuple[Oracle, tuple[Finding, ...]]:
    """The oracle of the target, as one of token ids where embeddings or its description say so."""
    oracle = job.oracle(target)
    if oracle.spec.domain is not None or oracle.spec.width is not None or job.width is not None:
        return oracle, ()
    if job.embeddings is not None:
        return with_vocabulary(oracle, len(read_embeddings(job.embeddings))), ()
    if not getattr(oracle, "takes_ids", False):
        return oracle, ()
    size, seen = vocabulary_of(oracle, job.frame)
    return with_vocabulary(oracle, size), (seen,)


def _recover_ids(ledger: Ledger, job: Job) -> Result:
    """Free ids are asked: those of the vocabulary without the padding id, inside the frame."""
    for name, given in (("learner", job.learner), ("tolerance", job.tolerance)):
        if given is not None:
            raise UsageError(f"{name} is for targets of rows, not of token ids; leave it out")
    frame = job.frame
    whole = ledger.width + (frame.padding is not None)
    corpus = checked_id_sequences(job.sequences, whole, ledger.max_length)
    free = None if corpus is None else [frame.free(each[each != frame.padding]) for each in corpus]
    from unsoftmax.recovery.tokens import recover_tokens

    return recover_tokens(ledger, int(job.seed), job.family, job.embeddings, free, frame)


def _speaks(oracle: Oracle, family: Family | None) -> bool:
    """Whether the target is a language model, or is to be taken for one."""
    return family is Family.LANGUAGE_MODEL or (oracle.spec.log_probabilities and family is None)


def checked_tolerance(tolerance: float | None) -> float | None:
    """How far an answer may be off, or a `UsageError`."""
    if tolerance is None:
        return None
    number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    if not number or not (np.isfinite(tolerance) and tolerance >= 0):
        raise UsageError(f"tolerance must be a finite number >= 0, not {tolerance!r}")
    return float(tolerance)
