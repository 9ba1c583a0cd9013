"""The recovery of a target that takes token ids: learn, certify, and say how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from unsoftmax.answers import Exact, Finding
from unsoftmax.arrays import EPS, Array
from unsoftmax.certify import REPLAY_TEST, Certificate
from unsoftmax.certify.token_certificate import certify_tokens
from unsoftmax.certify.token_coverage import MOST_TOKENS, Coverage, cover_tokens
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.claims import Size
from unsoftmax.learners.tokens import (
    FixedAsker,
    FramedHeads,
    KnownEmbeddings,
    LearnedTokens,
    TokenLearner,
    WithoutPrefix,
    last_token_asks,
)
from unsoftmax.learners.tokens.books import TokenBooks
from unsoftmax.learners.tokens.checks import EQUAL_SEQUENCES
from unsoftmax.learners.tokens.claims import TOKEN_HEAD_CLAIM
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.models import Model, TokenHeads
from unsoftmax.models.tokens.hidden_pairs import hidden_share
from unsoftmax.oracles import Ids, TokenFrame, identity, pins_content
from unsoftmax.outcomes import OutsideClass, Status, Stop, Unresolved
from unsoftmax.recovery.inputs.known_rows import checked_embeddings
from unsoftmax.recovery.inputs.token_targets import with_padding
from unsoftmax.recovery.result import Result

__all__ = ["LONGEST", "recover_tokens"]

LONGEST = 64  # tokens of a sequence, where the target sets no limit
_USUAL_RANK = 8  # for progress, before the rank is known
_STREAM = 0x70C3A5  # keeps our randomness apart from that of targets made from the same small seed
_EXACT = 1e-10  # noise relative to answers, up to which they count as exact; short floats have 1e-8
_KNOWN_TOKENS = 2048  # tokens asked once where a head over known embeddings is checked
_STRONG_EXPLAINED = 1e-5  # where some scores are too strong to show, few columns are worse than predicted
_FRAMED = "scores are those of the frame's asking token; other tokens never ask"
_PREFIXED = "behind a prefix, several heads or positions would be answered like this too; they are not learnt"
_JOINT_ROUNDING = 30.0  # units of noise, to which a joint fit in float64 settles at worst
_USEFUL = 0.1  # relative error from which a recovery is none
_BOUND = 10.0  # of the measured errors: they are a sample ...
# ... where joint fits leave errors to a few tokens: of 20,000 answers of three heads the worst was 11 times
# that of the sample, once in ten models ...
_JOINT_BOUND = 30.0
_NOISE_BOUND = 5.0  # ... of which more answers than unknowns leave noise alone ...
_SCORES_BOUND = 3.0  # of the error that scores are predicted to have: a standard deviation
_STRONG_BOUND = 100.0  # ... and where scores are strong, few columns are much worse than the others


@dataclass(frozen=True)
class _Evidence:
    learned: LearnedTokens
    certificate: Certificate
    coverage: Coverage
    growth: float = 1.0  # of a relative error, on the way from scores to parameters
    hidden: float = 0.0  # share of scores that show in no answer


def recover_tokens(
    ledger: Ledger,
    seed: int,
    family: Family | None = None,
    embeddings: object = None,
    corpus: list[Ids] | None = None,
    frame: TokenFrame | None = None,
) -> Result:
    """Learns and certifies on an open ledger of a target that takes token ids.

    frame: the fixed tokens around the ids that the ledger asks.

    embeddings: of every token, where they are known. corpus: sequences of the user's own, on which the model
    is compared as well.
    """
    padding = None if frame is None else frame.padding
    vocabulary = ledger.width + (padding is not None)
    known = None if embeddings is None else checked_embeddings(embeddings, vocabulary)
    if known is not None and padding is not None:
        known = np.delete(known, padding, axis=0)
    if family not in (None, Family.TOKENS, *([] if known is None else [Family.SINGLE_HEAD])):
        raise UsageError(
            f"the target takes token ids, and the family '{family}' takes rows; leave the family out"
        )
    limit = ledger.max_length
    longest = min(LONGEST - (0 if frame is None else frame.fixed), LONGEST if limit is None else limit)
    rank = min(_USUAL_RANK, ledger.width)
    ledger.expect(TOKEN_HEAD_CLAIM.queries.expected(Size(ledger.width, (rank,))))
    learning, checking = (np.random.default_rng([_STREAM, seed, part]) for part in (1, 2))
    evidence: _Evidence | None = None
    model: Model | None = None
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            learned, growth, note, model = _learn(ledger, frame, known, longest, learning)
            most = MOST_TOKENS if known is None else _KNOWN_TOKENS
            evidence = _examine(ledger, learned, longest, checking, corpus, most)
        evidence = replace(evidence, growth=growth)
        status, reason = _judge(evidence)
        _confirm(ledger, evidence, seed, longest)
        reason = f"{note}; {reason}" if note else reason
        if padding is not None and isinstance(model, TokenHeads):
            model = with_padding(model, padding)
            reason = f"the padding id {padding} is not a token of the model; {reason}"
    except Stop as stop:
        status, reason = stop.status, stop.reason
    return Result(
        status=status,
        reason=reason,
        queries=ledger.bill,
        family=TokenHeads.family if model is None else model.family,
        width=vocabulary if model is None else model.width,
        claim=TokenLearner().claim if evidence is None else evidence.learned.claim,
        model=model if evidence is not None and status.recovered else None,
        certificate=None if evidence is None else evidence.certificate,
        error_bound=None if evidence is None else _bound(evidence),
        findings=() if evidence is None else _findings(evidence.learned),
    )


def _learn(
    ledger: Ledger, frame: TokenFrame | None, known: Array | None, longest: int, rng: np.random.Generator
) -> tuple[LearnedTokens, float, str, Model]:
    """What was learnt, as a function of the ids that the ledger asks; how much errors of scores grow on the
    way to parameters; a note for people; and the model to hand out."""
    if frame is None or not frame.fixed:
        return _plain(ledger, known, longest, rng)
    if frame.suffix or not last_token_asks(ledger, longest, rng):
        if known is not None:
            raise UsageError("embeddings are of no use where a fixed token asks; leave one of both out")
        learned = FixedAsker().learn(ledger, frame, longest, rng)
        return learned, 1.0, _FRAMED, TokenHeads(learned.model.heads)
    view = WithoutPrefix.of(ledger, frame, longest)
    try:
        learned, growth, note, model = _plain(view, known, view.longest, rng)
    except OutsideClass as refuted:
        raise Unresolved(f"{refuted.refutation.seen}; {_PREFIXED}") from refuted
    return replace(learned, model=FramedHeads(learned.model.heads, frame)), growth, note, model


def _plain(
    asker: TokenBooks, known: Array | None, longest: int, rng: np.random.Generator
) -> tuple[LearnedTokens, float, str, Model]:
    if known is None:
        learned = TokenLearner().learn(asker, longest, rng)
        return learned, 1.0, "", learned.model
    found = KnownEmbeddings().learn(asker, known, longest, rng)
    return found.tokens, found.amplification, found.note, found.head


def _examine(
    ledger: Ledger,
    learned: LearnedTokens,
    longest: int,
    rng: np.random.Generator,
    corpus: list[Ids] | None,
    most: int,
) -> _Evidence:
    model = learned.model
    coverage = Coverage(0.0, 0.0, 0.0, 0)
    unasked = max(0, model.vocabulary - most)
    ledger.expect(ledger.bill.total, learned.claim.verification(Size(model.vocabulary)) - unasked)
    with ledger.phase(VERIFICATION):
        if longest >= 2:
            coverage = cover_tokens(ledger, model, learned.noise, longest, rng, most, learned.strong)
        size = float(model.sensitivity(np.zeros((1, 1)))[0])
        allowed = _explained(learned, coverage)
        certificate = certify_tokens(ledger, model, rng, allowed=allowed, longest=longest, corpus=corpus)
    if certificate.max_relative_error <= model.exact_at:
        certificate = replace(certificate, allowed=model.exact_at)
    certificate = replace(certificate, resolution=learned.noise / size)
    hidden = 0.0
    if coverage.hidden > 0.0:
        hidden = hidden_share(model.heads[0], max(learned.noise, EPS * size), max(longest, 2), rng)
    return _Evidence(learned, certificate, coverage, hidden=hidden)


def _confirm(ledger: Ledger, evidence: _Evidence, seed: int, longest: int) -> None:
    """Where every answer came from a ledger file: is the target still the one that gave them?"""
    if not ledger.only_replayed or pins_content(identity(ledger.oracle)):
        return
    model, rng = evidence.learned.model, np.random.default_rng([_STREAM, seed, 3])
    allowed = 10.0 * max(_relative_errors(evidence), model.exact_at)

    def compare(batch: Array, answers: Array) -> None:
        off = float(np.abs(answers - model(batch)).max())
        if off > allowed * float(model.sensitivity(batch)[0]):
            raise OutsideClass(
                REPLAY_TEST,
                f"all answers came from the ledger, and a fresh one is off by {off:.2g}; the target has "
                "changed: use a new ledger",
            )

    while ledger.only_replayed:
        ids = rng.integers(0, model.vocabulary, (1, min(5, longest)))
        with ledger.phase(VERIFICATION):
            # what another target says must not get into this ledger
            ledger.ask(cast(Array, ids), check=compare)


def _findings(learned: LearnedTokens) -> tuple[Finding, ...]:
    """What kind of answers the target gives, where equal sequences told it."""
    if not learned.seen:
        return ()
    return (Finding("answers", learned.answers.name, learned.seen, EQUAL_SEQUENCES),)


def _relative_errors(evidence: _Evidence) -> float:
    """The largest deviation of any fresh answer, relative to the spread of the values."""
    size = float(evidence.learned.model.sensitivity(np.zeros((1, 1)))[0])
    return max(evidence.certificate.max_relative_error, evidence.coverage.max_error / size)


def _bound(evidence: _Evidence) -> float:
    """On answers relative to their spread, and on the scores that show relative to their size."""
    predicted = _SCORES_BOUND * evidence.growth * evidence.learned.score_error
    return max(_answers_bound(evidence), predicted)


def _answers_bound(evidence: _Evidence) -> float:
    """On answers relative to their spread, and on the scores of fresh pairs relative to their size."""
    scores = evidence.coverage.score_error
    learned = evidence.learned
    size = float(learned.model.sensitivity(np.zeros((1, 1)))[0])
    if learned.fitted and not isinstance(learned.answers, Exact):  # losses of noise are known by themselves
        answers = max(_NOISE_BOUND * _relative_errors(evidence), learned.loss / size)
        return max(answers, evidence.growth * learned.parameter_error)
    strong = evidence.coverage.hidden > 0.0 or (learned.fitted and learned.strong)
    margin = _STRONG_BOUND if strong else _JOINT_BOUND if learned.fitted else _BOUND
    rounding = _JOINT_ROUNDING * learned.noise / size if learned.fitted else EPS
    seen = max(_relative_errors(evidence), learned.loss / size, learned.parameter_error, rounding)
    return margin * max(seen, evidence.growth * (0.0 if np.isnan(scores) else max(scores, EPS)))


def _explained(learned: LearnedTokens, coverage: Coverage) -> float:
    """How far answers may be from the model's by the errors of the method, relative to their spread."""
    size = float(learned.model.sensitivity(np.zeros((1, 1)))[0])
    explained = max(learned.explained / size, learned.model.exact_at)
    strong = coverage.hidden > 0.0 and not learned.fitted
    return max(explained, _STRONG_EXPLAINED) if strong else explained


def _judge(evidence: _Evidence) -> tuple[Status, str]:
    learned, certificate, coverage = evidence.learned, evidence.certificate, evidence.coverage
    model = learned.model
    size = float(model.sensitivity(np.zeros((1, 1)))[0])
    worst, bound = _relative_errors(evidence), _answers_bound(evidence)
    largest = float(max(np.max(np.abs(head.values)) for head in model.heads))
    exact = learned.noise <= _EXACT * max(largest, size)
    covered = f"{certificate.statement}; every token asked once: at most {coverage.max_error:.2g} off"
    all_shows = coverage.hidden == 0.0 and learned.unseen == 0
    if exact and worst <= model.exact_at and _bound(evidence) <= model.exact_at and all_shows:
        return Status.EXACT, covered
    explained = _explained(learned, coverage)
    if worst <= explained and bound <= _USEFUL:
        return (
            Status.WITHIN_BOUND,
            f"answers are known to {bound:.1g} of the spread of values (fresh ones deviate by {worst:.1g})"
            f"{_about_scores(evidence)}; {covered}",
        )
    if worst > explained and coverage.hidden == 0.0 and not learned.strong:
        return Status.OUTSIDE_CLASS, (
            f"failed the test 'fresh sequences are answered as the model predicts': off by {worst:.2g} of "
            f"the spread of values, {explained:.1g} is explained; {certificate.statement}"
        )
    return Status.UNRESOLVED, (
        f"answers are only known to {worst:.1g} of the spread of values; {covered}; exact answers, weaker "
        "scores or another seed would help"
    )


def _about_scores(evidence: _Evidence) -> str:
    """How well scores are known, where that is worse than answers, and which ones are not known at all."""
    known, unseen = _bound(evidence), evidence.learned.unseen
    parts = []
    if known > _answers_bound(evidence):
        parts.append(f"scores to {known:.1g} of their size, for some hardly show in answers")
    if unseen:
        whose = "one asking token" if unseen == 1 else f"{unseen} asking tokens"
        parts.append(f"the scores of {whose} show too faintly to be known, and the bound does not cover them")
    if evidence.hidden:
        parts.append(
            f"{evidence.hidden:.2%} of scores show in no answer; they are listed by "
            "model.hidden_pairs(certificate.resolution)"
        )
    return "".join(f"; {part}" for part in parts)
