"""`check`: what a target is, what can be recovered from it, what stands in the way, and the next command."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from unsoftmax.answers import Computed, Finding, Seen, Subject, identify
from unsoftmax.errors import NonFiniteAnswers, OracleFault, UsageError, VectorAnswers
from unsoftmax.families import Family
from unsoftmax.first_look.asking import FirstLookAsker
from unsoftmax.first_look.look import FirstLook, take_look
from unsoftmax.html_tables import facts_table
from unsoftmax.learners import Known
from unsoftmax.learners.language_model.findings import findings_of
from unsoftmax.learners.tokens.first_look import look_at_tokens
from unsoftmax.ledger import Ledger
from unsoftmax.oracles import Logits
from unsoftmax.oracles.base import check_width
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.outcomes import Status, Stop
from unsoftmax.recovery.advice import CLOSED_ENDPOINT, causes_of
from unsoftmax.recovery.answer_range import AnswerRange
from unsoftmax.recovery.attempt import look_at_answers
from unsoftmax.recovery.choose import choose
from unsoftmax.recovery.first_row import reverse_for_first_row
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.recovery.moderate_rows import SHORT_PROBABILITIES, moderate_rows
from unsoftmax.recovery.obstacles import bends, beside_a_skip, obstacle_of
from unsoftmax.recovery.plan import plan_for
from unsoftmax.recovery.pooling import rows_alike
from unsoftmax.recovery.reach import ANSWER_SHAPE, REPAIR, Asked, limited, reach, told_options
from unsoftmax.recovery.tokens import LONGEST

__all__ = ["Check", "check"]

_STREAM = 0xC4EC  # keeps this randomness apart from that of targets made from the same small seed
_WITHOUT = {
    Status.OUTSIDE_CLASS: "none of the supported families",
    Status.NOT_IDENTIFIABLE: "one answer to everything",
}
_BLOCK = "a block of attention and a network (vector answers that bend)"
_NAMES = {
    Family.SINGLE_HEAD: "one attention head",
    Family.MULTI_HEAD: "several attention heads",
    Family.TRANSFORMER: "attention with a ReLU network on top",
    Family.RELU_NETWORK: "a ReLU network",
}


@dataclass(frozen=True, repr=False)
class Check:
    """What a short look says of a target.

    recoverable: whether `recover` has a learner for what was seen; only `recover` proves that it succeeds.
    looks_like: the target in words. obstacle: what stands in the way, empty where nothing does. advice: what
    to do next. command: the next command line; empty for a target that is not given as text. expected:
    usual queries of the recovery, where they can be told. ending: how `recover` would end, where nothing can
    be recovered and the target answers.
    """

    recoverable: bool
    looks_like: str
    obstacle: str
    advice: str
    command: str
    queries: int
    expected: int | None = None
    findings: tuple[Finding, ...] = field(default=())
    ending: Status | None = None

    def __repr__(self) -> str:
        verdict = "recoverable" if self.recoverable else "not recoverable"
        return f"Check({verdict}: {self.looks_like}; {self.queries} queries)"

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        ending = None if self.ending is None else str(self.ending)
        return asdict(self) | {"ending": ending, "findings": [asdict(finding) for finding in self.findings]}

    def _repr_html_(self) -> str:
        """The facts as a table, for notebooks."""
        facts: list[tuple[str, object]] = [("looks like", self.looks_like)]
        facts += [(finding.subject, finding.value) for finding in self.findings]
        facts += [("in the way", self.obstacle)] if self.obstacle else []
        facts += [("next", self.advice), ("queries", f"{self.queries:,}")]
        return facts_table("unsoftmax.Check", facts)


def check(
    target: object,
    *,
    width: int | None = None,
    outputs: int | None = None,
    input_bound: float | None = None,
    vocabulary: int | None = None,
    longest: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Check:
    """A short look at a target: what is it, can it be recovered, what to do next?

    About 60 queries where answers are exact (up to 110 with a network on top), 70 to 290 over token ids, 100
    to 500 behind errors and labels.

    One of them is a long sequence, as certificates need some; where the target takes short ones only, a few
    more find out how long they may be.

    The options are those of `recover`; name: what the target is called on a command line. A target that
    answers every row of a sequence is read at its last row.

    >>> import unsoftmax
    >>> found = unsoftmax.check("demo:multi-head?d=6&heads=2")
    >>> found.recoverable, found.looks_like
    (True, 'several attention heads, width 6, answers: exact')
    """
    called = name if name is not None else target
    try:
        asked = limited(reach(target, width, outputs, vocabulary), width, longest)
        return _checked(asked, called, width, input_bound, seed)
    except VectorAnswers as vectors:
        if outputs is not None:
            return _silent(vectors, REPAIR)
        seen = vectors
    except OracleFault as fault:
        return _silent(fault, REPAIR)
    oracle = as_oracle(target, outputs=seen.outputs, vocabulary=vocabulary)
    shape = f"vectors of {seen.outputs} numbers"
    first = Finding(ANSWER_SHAPE, shape, "the target's first answers", seen.queries)
    asked = Asked(oracle, told_options(vocabulary, seen.outputs), seen.queries, (first,))
    asked = limited(asked, width, longest)
    return _checked(asked, called, width, input_bound, seed)


def _silent(fault: OracleFault, way_out: str, *, answered: bool = False) -> Check:
    """A target that does not answer, or not always. A message of overflow names its own way out."""
    looks_like = "a target that fails on some inputs" if answered else "a target that does not answer"
    advice = "" if isinstance(fault, NonFiniteAnswers) else way_out
    return Check(False, looks_like, str(fault), advice, "", 0)


def _checked(asked: Asked, called: object, width: int | None, input_bound: float | None, seed: int) -> Check:
    """What a target is, asked as its answers ask for."""
    ledger = Ledger(asked.oracle, width=width, input_bound=input_bound)
    if asked.oracle.spec.log_probabilities:
        found = _language_model(ledger)
        return replace(found, command=_command(called, asked, width)) if found.recoverable else found
    ledger.watch(seen := AnswerRange())
    found = _looked(ledger, asked, _command(called, asked, width), seed)
    range_of = seen.finding()
    if range_of is not None and range_of.value == Seen.CLASSES:
        return _classes(found, range_of)
    if found.recoverable or range_of is None or isinstance(ledger.domain, TokenIds):
        return found
    if found.ending is Status.NOT_IDENTIFIABLE:  # one answer to everything, whatever its logit
        return found
    asked = replace(
        asked, oracle=Logits(asked.oracle), options=(*asked.options, "--probabilities"), queries=found.queries
    )
    logits = _of_logits(asked, called, width, input_bound, seed)
    if logits is None or logits.recoverable:
        return logits or found
    why = "as probabilities do, and their logits are not recovered"
    causes = causes_of(logits.findings, None, vectors=asked.oracle.spec.outputs is not None)
    return replace(
        found,
        obstacle=f"{range_of.evidence}, {why}: {logits.obstacle}",
        advice=" ".join((_would_end(found.ending) if found.ending else found.advice, *causes)),
        queries=logits.queries,
    )


def _classes(found: Check, seen: Finding) -> Check:
    """A target that tells one of several classes; two of them are labels, and found as such."""
    ending = Status.UNRESOLVED if found.recoverable else found.ending
    advice = f"`recover` would end as {ending}. Ask for the logits, or for the probabilities of the classes."
    return replace(
        found,
        recoverable=False,
        obstacle=found.obstacle or seen.evidence,
        advice=advice if ending is not None else found.advice,
        command="",
        expected=None,
        findings=(*found.findings, seen),
        ending=ending,
    )


def _of_logits(
    asked: Asked, called: object, width: int | None, input_bound: float | None, seed: int
) -> Check | None:
    """The same target, read as probabilities, where their logits can be recovered."""
    assert isinstance(asked.oracle, Logits)
    columns = check_width(width if width is not None else asked.oracle.spec.width)
    try:
        rows = moderate_rows(asked.oracle, columns, input_bound, np.random.default_rng([_STREAM, seed, 1]))
    except (OracleFault, UsageError):
        return None
    asked = replace(
        asked, queries=asked.queries + rows.finding.queries, findings=(*asked.findings, rows.finding)
    )
    ledger = Ledger(asked.oracle, width=width, input_bound=rows.bound)
    found = _looked(ledger, asked, _command(called, asked, width), seed)
    if not found.recoverable:
        return replace(found, obstacle=SHORT_PROBABILITIES) if rows.short else found
    return replace(found, looks_like=f"{found.looks_like} (the logits of probabilities)")


def _looked(ledger: Ledger, asked: Asked, command: str, seed: int) -> Check:
    """What is seen through the ledger."""
    rng = np.random.default_rng([_STREAM, seed])
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            found = (_tokens if isinstance(ledger.domain, TokenIds) else _rows)(ledger, command, rng)
    except VectorAnswers:
        raise
    except OracleFault as fault:
        found = _silent(fault, asked.way_out, answered=bool(ledger.early_queries))
    except Stop as stop:
        text = "a target that could not be looked at"
        found = Check(False, text, stop.reason, "", "", 0, ending=stop.status)
    return replace(
        found,
        queries=ledger.bill.total + asked.queries,
        findings=(*asked.findings, *found.findings),
        advice=" ".join(filter(None, (_hint(asked, found), found.advice))),
    )


def _tokens(ledger: Ledger, command: str, rng: np.random.Generator) -> Check:
    """A target of token ids."""
    longest = LONGEST if ledger.max_length is None else min(LONGEST, ledger.max_length)
    look = look_at_tokens(ledger, longest, rng)
    text = f"{look.name}, vocabulary {ledger.width}"
    if look.ending is not None:
        found = Check(False, text, look.obstacle, _would_end(look.ending), "", 0, ending=look.ending)
    else:
        advice = "Recover it: attention heads over ids are recovered without their embeddings."
        if look.order_matters:
            advice += (
                " Learned places are recovered, of one head; rotary positions, biases by distance, windows "
                "and further layers look the same in a short look, and end UNRESOLVED."
            )
        found = Check(True, text, "", advice, command, 0)
    return replace(found, findings=look.findings)


def _rows(ledger: Ledger, command: str, rng: np.random.Generator) -> Check:
    """A target of rows."""
    known, look = _look(ledger, rng)
    asking = None
    if look.value(Subject.ORDER) == Seen.MATTERS and not bends(known, look):
        asking = reverse_for_first_row(ledger, replace(known, answers=look.answers), rng)
    if asking is None:
        return _judged(ledger, known, look, command, rng)
    known, look = _look(ledger, rng)
    found = _judged(ledger, known, look, command, rng)
    return replace(
        found, looks_like=f"{found.looks_like}, the first row asks", findings=(asking, *found.findings)
    )


def _look(ledger: Ledger, rng: np.random.Generator) -> tuple[Known, FirstLook]:
    """What `recover` finds out of the answers, and a first look at the rest."""
    asker = FirstLookAsker(ledger, rng)
    known = look_at_answers(
        ledger, Known(domain=ledger.domain, outputs=ledger.outputs, max_length=ledger.max_length), rng
    )
    seen = next((finding for finding in known.findings if finding.subject == Subject.ANSWERS), None)
    look = take_look(asker, known.answers, "" if seen is None else seen.evidence)
    if known.exact and known.outputs is None and not look.repeats:  # a closer look at what changes
        found = identify(ledger, rng)
        look, seen = take_look(FirstLookAsker(ledger, rng), found.answers, found.evidence), found.finding
    paid = {} if seen is None else {seen.subject: seen.queries}
    priced = (replace(each, queries=each.queries + paid.get(each.subject, 0)) for each in look.findings)
    return known, replace(look, findings=tuple(priced))


def _language_model(ledger: Ledger) -> Check:
    """A target that tells log-probabilities by its own word: nothing needs to be asked."""
    look = getattr(ledger.oracle, "look", None)
    found = () if look is None else findings_of(look, {})
    if look is not None and not look.readable:
        text, why = "a language model behind an endpoint that tells little", " ".join(look.sentences)
        return Check(False, text, why, CLOSED_ENDPOINT, "", 0, findings=found, ending=Status.UNRESOLVED)
    text = f"a language model that tells log-probabilities of {ledger.outputs} tokens"
    if isinstance(ledger.domain, TokenIds):
        advice = "Recover it: hidden width and unembedding, up to an invertible matrix, leak at any depth."
    else:
        advice = (
            f"Recover it: the unembedding leaks at any depth for {ledger.width} queries; a model "
            "of one layer in float64 (Llama's or GPT-2's shape) usually leaks as a whole."
        )
    return Check(True, text, "", advice, "", 0, findings=found)


def _judged(ledger: Ledger, known: Known, look: FirstLook, command: str, rng: np.random.Generator) -> Check:
    """What `recover` would do with what the look saw, and that."""
    if look.finds_nothing and (alike := rows_alike(ledger, rng)) is not None:
        look = replace(look, findings=(*look.findings, alike))
    found = _foreseen(ledger, known, look, command, rng)
    refuted = found.ending is Status.OUTSIDE_CLASS
    return replace(
        found,
        findings=tuple(
            replace(each, value=str(Seen.NONE), evidence=found.obstacle)
            if refuted and each.subject == Subject.FAMILY
            else each
            for each in look.findings
        ),
    )


def _foreseen(ledger: Ledger, known: Known, look: FirstLook, command: str, rng: np.random.Generator) -> Check:
    """How `recover` would end."""
    kind = look.value("answers") or "unknown"
    vectors = "answers of one number" if ledger.outputs == 1 else f"answers of {ledger.outputs} numbers"
    shown = f"width {ledger.width}, {f'answers: {kind}' if ledger.outputs is None else vectors}"
    curved = bends(known, look)
    name = _NAMES.get(look.guess or look.family, str(look.family))
    if curved:
        name = _NAMES[Family.TRANSFORMER] if ledger.outputs is None else _BLOCK
    elif beside_a_skip(ledger, look, rng):
        text = f"attention beside a skip connection, {shown}"
        advice = "Recover it: the skip connection is found first and taken off the answers."
        return Check(True, text, "", advice, command, 0)
    if (stop := obstacle_of(ledger, known, look, rng)) is not None:
        text = f"{_WITHOUT.get(stop.status, name)}, {shown}"
        causes = causes_of(look.findings, look.answers, vectors=ledger.outputs is not None)
        advice = " ".join([_would_end(stop.status), *causes])
        return Check(False, text, stop.reason, advice, "", 0, ending=stop.status)
    told = replace(
        known,
        answers=look.answers,
        identified=True,
        bends=curved and (look.answers is None or look.answers.exact or isinstance(look.answers, Computed)),
        look=look,
    )
    wanted = Family.ENCODER_BLOCK if name is _BLOCK and known.max_length != 1 else None
    learner, text = next(choose(told, wanted)).learner, f"{name}, {shown}"
    if needs := learner.claim.too_short(ledger.max_length):
        return Check(False, text, needs, _would_end(Status.UNRESOLVED), "", 0, ending=Status.UNRESOLVED)
    biased = {"present": True, "none": False}.get(look.value("query bias") or "")
    expected = plan_for(learner, ledger.width, ledger.outputs, biased=biased).usual
    advice = f"Recover it. This usually takes at most {expected:,} queries (learner: {learner.claim.title})."
    return Check(True, text, "", advice, command, 0, expected)


def _would_end(status: Status) -> str:
    return f"`recover` would end as {status}. That does not mean that the target is safe."


def _hint(asked: Asked, found: Check) -> str:
    """What was read of the answers, where that was not all."""
    if "--row last" in asked.options:
        read = "The target answers every row; its last row was read."
        others = "first or mean" if _takes_ids(asked) else "first, mean or all"
        choice = f"row='last' ({others}), or readout=WEIGHTS, which makes one number of a vector."
        return f"{read} Say what to read when you recover it: {choice}" if found.recoverable else read
    if "--probabilities" in asked.options:
        return "The target answers with probabilities; their logits were read. Say so when you recover it."
    return ""


def _takes_ids(asked: Asked) -> bool:
    return isinstance(asked.oracle.spec.domain, TokenIds)


def _command(target: object, asked: Asked, width: int | None) -> str:
    """The next command line, for a target that has one."""
    if not isinstance(target, str):
        return ""
    told = (f"--width {width}",) if width is not None and asked.oracle.spec.width is None else ()
    return " ".join(("unsoftmax recover", shlex.quote(target), *told, *asked.options))
