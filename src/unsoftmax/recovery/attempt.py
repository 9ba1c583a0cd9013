"""One attempt at a target: what kind of answers, which learner, is the model right?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.answers import (
    IDENTIFY,
    Answers,
    Clipped,
    Computed,
    Exact,
    Finding,
    Unsteady,
    identify,
    looks_exact,
)
from unsoftmax.answers.along_rays import random_rows
from unsoftmax.answers.cast_rows import refuse_rounded_rows
from unsoftmax.answers.looks_computed import look_at_arithmetic, look_closer
from unsoftmax.certify import REPLAY_TEST, confirm_target
from unsoftmax.errors import NonFiniteAnswers, UsageError
from unsoftmax.families import Family
from unsoftmax.first_look.look import FirstLook
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.learners import Known, Learned, Learner, Size
from unsoftmax.learners.one_head.checks import REPEAT_TEST
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.readouts.exact import read_constant, read_values
from unsoftmax.ledger import VERIFICATION, Asker, Exchange, Ledger
from unsoftmax.ledger.views import BilledTo, WithoutSkip
from unsoftmax.models import Model, SingleHead, plain_model
from unsoftmax.oracles import identity, pins_content
from unsoftmax.oracles.domain import Space
from unsoftmax.outcomes import OutsideClass, Status, Stop, Unresolved
from unsoftmax.recovery.choose import choose
from unsoftmax.recovery.judge import Verdict, judge
from unsoftmax.recovery.plan import usual_size
from unsoftmax.recovery.skip import look_for_skip, with_skip
from unsoftmax.recovery.stated_bound import tolerance_of

if TYPE_CHECKING:
    from unsoftmax.learners.language_model.parts import RecoveredPart

__all__ = ["Attempt", "Outcome", "Prepare", "Streams", "look_at_answers", "overflow_in_float16"]

# what else to find out before learning: what is known then, with a first look, and a reason to end here
Prepare = Callable[[Ledger, Known, np.random.Generator], tuple[Known, Stop | None]]

_HEADS = (Family.SINGLE_HEAD, Family.MULTI_HEAD)  # families that may stand beside a skip connection
_STREAM = 0x5F0F7  # keeps our randomness apart from that of targets made from the same small seed
_ODD = 1e-6  # of the answers: an affine function is never off by so much
_ROUNDING = 1e-13  # of what an answer can show: a few hundred roundings of float64
_REPEATED = 1e-12  # of the answers: how far they may be off when asked again


@dataclass(frozen=True)
class Streams:
    """Randomness of a run: one seed, apart by purpose and attempt."""

    seed: int

    def __call__(self, part: int, attempt: int = 0) -> np.random.Generator:
        return np.random.default_rng([_STREAM, self.seed, part + 10 * attempt])


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended, and what was found out until then."""

    known: Known
    status: Status
    reason: str
    learner: Learner | None = None
    learned: Learned | None = None
    verdict: Verdict | None = None
    parts: Mapping[str, RecoveredPart[Any]] = field(default_factory=dict)
    stop: Stop | None = None

    @property
    def failed(self) -> bool:
        """Whether another kind of answers, or a closer look, could change or explain this outcome; not where
        the target is no longer the one that the ledger knows."""
        changed = isinstance(self.stop, OutsideClass) and self.stop.test == REPLAY_TEST
        return self.status in (Status.OUTSIDE_CLASS, Status.UNRESOLVED) and not changed

    def ended_by(self, stop: Stop) -> Outcome:
        """What was found out until then, with another end."""
        return replace(self, status=stop.status, reason=stop.reason, stop=stop)


class Attempt:
    """Learns with one learner after another, then judges. A stop ends it with what was found out until
    then."""

    def __init__(
        self, ledger: Ledger, known: Known, family: Family | None, streams: Streams, number: int = 0
    ) -> None:
        self._ledger = ledger
        self._family = family
        self._streams = streams
        self._learning, self._checking = streams(1, number), streams(2, number)
        self._look: FirstLook | None = known.look  # explains a failure, and steers no choice
        self._known = replace(known, look=None)
        self._learner: Learner | None = None
        self._learned: Learned | None = None
        self._verdict: Verdict | None = None

    @property
    def _asker(self) -> Asker:
        """What learners and the judge ask: the ledger, without a skip connection where one was found, and
        rows as long as the answers' errors stay of the kind that was found."""
        known = self._known
        asker = self._ledger if known.skip is None else WithoutSkip(self._ledger, known.skip)
        longest = np.inf if known.answers is None else known.answers.longest_row
        return asker.within(longest) if np.isfinite(longest) else asker

    def run(self, prepare: Prepare | None = None) -> Outcome:
        """The attempt with the learners that `choose` names, in turn. prepare: see `recovery.run`."""
        try:
            self._known = look_at_answers(self._asker, self._known, self._learning)
            if isinstance(self._known.answers, Computed) and self._family in (None, *_HEADS):
                # 19 queries, where every attempt costs hundreds
                self._known = look_for_skip(self._ledger, self._known, self._streams(6))
            if prepare is not None:
                seen, stop = prepare(self._ledger, self._known, self._streams(5))
                self._look, self._known = seen.look, replace(seen, look=None)
                if stop is not None:
                    return self._stopped(stop)
            self._known = _look_for_bends(self._asker, self._known, self._family)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # the certificate decides
                learned = self._learn()
            return self._judge(learned, _ruler_for(learned.model, self._known.answers or Exact()))
        except Stop as stop:
            return self._stopped(stop)

    def with_learner(self, learner: Learner) -> Outcome:
        """The attempt with one learner. What the answers are is found out afterwards, for the judge alone."""
        self._learner = learner
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                learned = learner.learn(self._asker, self._known, self._learning)
            learned = replace(learned, model=plain_model(learned.model))  # no class grades itself
            return self._judge(learned, _ruler_for(learned.model, self._ruler(learned.model)))
        except Stop as stop:
            return self._stopped(stop)

    def _learn(self) -> Learned:
        tried: list[Learner] = []
        stops: list[Stop] = []
        while True:
            choices = (c for c in choose(self._known, self._family) if c.learner not in tried)
            learner = next((c.learner for c in choices if not stops or isinstance(stops[-1], c.after)), None)
            if learner is None:
                raise _together(stops, tried[0], self._known)
            tried.append(learner)
            self._learner = learner
            if learner.family in _HEADS and (needs := learner.claim.too_short(self._ledger.max_length)):
                stops.append(Unresolved(needs))
                continue
            self._known = _with_readout(self._asker, self._known, learner, self._learning)
            self._foresee(learner)
            try:
                return learner.learn(self._asker, self._known, self._learning)
            except OutsideClass as stop:
                stops.append(stop)
                self._known = replace(self._known, refuted=(*self._known.refuted, stop.refutation))
            except Unresolved as stop:
                stops.append(stop)
            except NonFiniteAnswers as fault:
                stops.append(overflow_in_float16(self._ledger, fault))
            except UsageError as error:  # no option of the user's: what the target answered makes no model
                stops.append(Unresolved(f"the answers lead to no model ({error}); another seed may help"))

    def _foresee(self, learner: Learner) -> None:
        """What a usual layer of the learner's family costs, until the learner knows better."""
        if learner.family is Family.LANGUAGE_MODEL:
            return  # its price depends on parts that nobody has seen yet
        ledger = self._ledger
        size = usual_size(learner.family, ledger.width, ledger.outputs)
        ledger.expect(
            ledger.bill.total + learner.claim.queries.expected(size), learner.claim.verification(size)
        )

    def _judge(self, learned: Learned, answers: Answers) -> Outcome:
        self._learned = learned
        # checks on the way are verification too, and the certificate may come on top of what was foreseen
        self._ledger.expect(self._ledger.bill.total, learned.claim.verification(Size.of(learned.model)))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self._verdict = verdict = judge(
                self._asker, learned, answers, self._learning, self._checking, self._known.sequences
            )
        ledger = self._ledger
        if verdict.status.recovered and ledger.only_replayed and not pins_content(identity(ledger.oracle)):
            confirm_target(
                ledger,
                with_skip(learned.model, self._known.skip),
                verdict.certificate,
                self._streams(3),
                tolerance=tolerance_of(answers, learned),
                deviation=answers.deviation,
                repeats=answers.repeats,
            )
        return self._outcome(verdict.status, verdict.reason)

    def _ruler(self, model: Model) -> Answers:
        """What the answers are, for a learner that the user chose: exact where those already paid for say so,
        which is the strictest ruler, else as a look at them tells."""
        known = self._known
        if known.answers is None and _agrees(model, self._asker.early_queries):
            return Exact()
        if known.answers is None:
            known = look_at_answers(BilledTo(self._asker, VERIFICATION), known, self._streams(4))
        self._known = known
        if isinstance(known.answers, Unsteady):
            raise OutsideClass(REPEAT_TEST, known.findings[-1].evidence)
        return known.answers or Exact()

    def _stopped(self, stop: Stop) -> Outcome:
        reason, answers = stop.reason, self._known.answers
        if isinstance(stop, Unresolved) and answers is not None and np.isfinite(answers.longest_row):
            reason += (
                " (answers are numbers of a short format: those to rows longer than "
                f"{answers.longest_row:.2g} are rounded further than noise moves them, so that only finer "
                "answers help)"
            )
        return replace(self._outcome(stop.status, reason), parts=stop.parts, stop=stop)

    def _outcome(self, status: Status, reason: str) -> Outcome:
        known = replace(self._known, look=self._look)
        learned = self._learned
        if learned is not None:
            learned = replace(learned, model=with_skip(learned.model, known.skip))
        return Outcome(known, status, reason, self._learner, learned, self._verdict)


def overflow_in_float16(asker: Asker, fault: NonFiniteAnswers) -> Unresolved:
    """What stands in the way where the answers until now are float16 numbers, which end at 65504. Raises the
    fault for other targets, whose rows were too long."""
    answers = [np.ravel(y) for _, y in asker.early_queries]
    if not answers or smallest_format(np.concatenate(answers)) is not FloatFormat.FLOAT16:
        raise fault
    return Unresolved(f"numbers overflow inside the target, which computes in float16: {fault}")


def _ruler_for(model: Model, answers: Answers) -> Answers:
    """Limits of answers are part of the function where the model is not a head that stops at them."""
    clipped = isinstance(model, SingleHead) and model.clip is not None
    return answers.inner if isinstance(answers, Clipped) and not clipped else answers


def _agrees(model: Model, exchanges: Sequence[Exchange]) -> bool:
    """Whether the model answers all of them as the target did, to float64. A head with limits never counts:
    what is beyond them is not told."""
    if isinstance(model, SingleHead) and model.clip is not None:
        return False
    for sequence, answer in exchanges:
        off = float(np.max(np.abs(model(sequence[None])[0] - answer)))
        if not off <= _ROUNDING * float(model.sensitivity(sequence[None])[0]):
            return False
    return True


def look_at_answers(asker: Asker, known: Known, rng: np.random.Generator) -> Known:
    """What kind of answers these are: three queries where they look exact, a full identification where not.

    Nothing is asked where the user told it, and of token ids. One query shows that vectors use all digits."""
    if known.answers is not None or not isinstance(known.domain, Space):
        return known
    if known.outputs is not None:
        return _look_at_vectors(asker, known, rng)
    seen = looks_exact(asker, rng)
    if seen is not None:
        return replace(known.with_answers(Exact(), seen.finding), bends=seen.bends)
    found = identify(asker, rng)
    with asker.phase(IDENTIFY):
        refuse_rounded_rows(asker, found.answers, rng)
    return replace(known.with_answers(found.answers, found.finding), identified=True, bends=found.bends)


def _look_at_vectors(asker: Asker, known: Known, rng: np.random.Generator) -> Known:
    """Whether vectors come from arithmetic that rounds at every step. Those that use all digits do not."""
    with asker.phase(IDENTIFY):
        before = asker.bill.total
        longest = np.inf if asker.input_bound is None else asker.input_bound
        row = random_rows(rng, 1, asker.width) * min(1.0, longest)
        if smallest_format(asker.ask(row[None])) is None:
            return known
        seen, bends = look_at_arithmetic(asker, rng, longest), False
        if seen.format is None:
            nearby, beside = look_closer(asker, rng, longest)
            alike = beside is not None and beside.alike
            if nearby.format is None and alike and seen.stored is not None:
                seen = replace(seen, format=seen.stored)  # what the heads show cancels in single rows
            else:
                seen, bends = nearby, beside is None or not beside.straight
        if seen.format is None:
            return known
        answers = Computed(seen.format, seen.noise)
    finding = Finding("answers", answers.name, seen.sentence, asker.bill.total - before)
    return replace(known.with_answers(answers, finding), bends=bends)


def _look_for_bends(asker: Asker, known: Known, family: Family | None) -> Known:
    """Whether a row and its negative, of which one was asked before, are answered otherwise than affinely:
    seen before a readout is paid for."""
    free = family is None and known.exact and known.outputs is None and known.max_length != 1
    early = next((each for each in asker.early_queries if len(each[0]) == 1), None)
    if not free or known.bends or early is None or not isinstance(known.domain, Space):
        return known
    row, before = early[0], float(early[1])
    c = read_constant(asker, known)
    known = replace(known, constant=c)
    with asker.phase(VERIFICATION):
        opposite = float(asker.ask(-row[None])[0])
        size = abs(c) + abs(before) + abs(opposite)
        if abs(before + opposite - 2.0 * c) <= _ODD * size:
            return known
        repeats = abs(float(asker.ask(row[None])[0]) - before) <= _REPEATED * size
    return replace(known, bends=repeats)


def _with_readout(asker: Asker, known: Known, learner: Learner, rng: np.random.Generator) -> Known:
    """The readout of single rows, once for all learners of exact heads."""
    if known.readout is not None or not _reads_values(learner):
        return known
    return replace(known, readout=read_values(asker, known, rng))


def _reads_values(learner: Learner) -> bool:
    """Whether the learner begins with the readout of single rows."""
    if isinstance(learner, SingleHeadLearner):
        return True
    from unsoftmax.learners.several_heads import MultiHeadLearner

    return isinstance(learner, MultiHeadLearner)


def _together(stops: list[Stop], first: Learner, known: Known) -> Stop:
    """The last reason; beside it, where answers have errors, why it is not one head, if that was tried."""
    last = next((stop for stop in stops if stop.parts), stops[-1])
    one_head = len(stops) > 1 and first.family is Family.SINGLE_HEAD
    if one_head and isinstance(last, Unresolved) and not known.exact:
        return Unresolved(f"{last.reason}; as one head it {stops[0].reason}")
    return last
