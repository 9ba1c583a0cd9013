"""The recovery of a language model that takes rows: learn, certify on fresh prompts, and say how it ended."""

from __future__ import annotations

from itertools import product

import numpy as np

from unsoftmax.certify import Certificate
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.deep_decoder.claim import DEEP_MODEL
from unsoftmax.learners.deep_decoder.learner import learn_deep_decoder, may_be_deeper
from unsoftmax.learners.language_model.findings import findings_of
from unsoftmax.learners.language_model.one_layer import LanguageModelFindings, learn_language_model
from unsoftmax.learners.language_model.token_prompts import ColumnSpace, TokenPromptLearner
from unsoftmax.learners.language_model.whole import PLAIN_MODEL, WHOLE_MODEL
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.meters.language_model.prompts import in_float32
from unsoftmax.models import LanguageModel
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.outcomes import Status, Stop
from unsoftmax.recovery.result import Result

__all__ = ["recover_language_model"]

_STREAM = 0x11A3A  # keeps our randomness apart from that of targets made from the same small seed
# prompts of every length; with none of 96 off, fewer than 5 % of prompts like these are, with 99 % confidence
_FRESH = 24
_LENGTHS = (1, 3, 8, 30)  # one row shows no attention, three its weights, thirty many positions
_SIZES = (0.1, 1.0, 3.0)  # norms divide by the size; small rows show their eps
_CONFIDENCE = 0.99  # of the share of deviating sequences that is stated
# prompts on a line, and its length over the size of a row: the fourth power of it is below the rounding of
# float32
_LINE_POINTS, _LINE = 12, 3e-3
# errors allowed over the largest rounding seen on the lines: of a hundred prompts some cancel more than
# those on four lines
_ROUNDINGS = 10.0


def recover_language_model(ledger: Ledger, seed: int) -> Result:
    """Learns and certifies on an open ledger of a target that answers with log-probabilities."""
    learning, checking = (np.random.default_rng([_STREAM, seed, part]) for part in (1, 2))
    found, certificate = LanguageModelFindings(), None
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            found = _learn(ledger, learning)
        status, reason = found.status, found.reason
        if found.model is not None:
            certificate = _certify(ledger, found, found.model, checking)
            status, reason = _judge(found, certificate)
    except Stop as stop:
        status, reason = stop.status, stop.reason
    if found.model is None and found.parts:
        reason = f"recovered in part: {', '.join(found.parts)}. The whole: {reason}"
    return Result(
        status=status,
        reason=reason,
        queries=ledger.bill,
        family=LanguageModel.family,
        width=ledger.width,
        claim=_claim(found),
        model=found.model if status.recovered else None,
        certificate=certificate,
        error_bound=found.error_bound,
        findings=findings_of(getattr(ledger.oracle, "look", None), found.parts),
        parts=found.parts,
    )


def _claim(found: LanguageModelFindings) -> Claim:
    part = found.parts.get("unembedding")
    if part is not None and isinstance(part.value, ColumnSpace):
        return TokenPromptLearner.claim
    if "layers" in found.parts:
        return DEEP_MODEL
    return PLAIN_MODEL if "positions" in found.parts else WHOLE_MODEL


def _learn(ledger: Ledger, rng: np.random.Generator) -> LanguageModelFindings:
    look = getattr(ledger.oracle, "look", None)
    if look is not None and not look.readable:
        return LanguageModelFindings(status=Status.UNRESOLVED, reason=" ".join(look.sentences))
    if not isinstance(ledger.domain, TokenIds):
        found = learn_language_model(ledger, rng)
        return learn_deep_decoder(ledger, found, rng) if may_be_deeper(found) else found
    part = TokenPromptLearner().learn_part(ledger, rng)
    return LanguageModelFindings(
        {part.name: part},
        None,
        Status.NOT_IDENTIFIABLE,
        f"prompts are token ids, so the {part.value.width} hidden coordinates are known up to an invertible "
        "matrix, and the layers are not seen",
    )


def _certify(
    ledger: Ledger, found: LanguageModelFindings, model: LanguageModel, rng: np.random.Generator
) -> Certificate:
    """Fresh prompts of several lengths and sizes; errors relative to the log-probabilities."""
    worst, relative, by_kind = 0.0, 0.0, {}
    longest = ledger.max_length
    lengths = tuple(length for length in _LENGTHS if longest is None or length <= longest)
    with ledger.phase(VERIFICATION):
        allowed = model.exact_at
        if found.error_bound is None or found.error_bound > model.exact_at:
            allowed = max(allowed, _ROUNDINGS * _own_rounding(ledger, model, lengths, rng))
        for length in lengths:
            kind = "one row" if length == 1 else f"{length} rows"
            sizes = rng.choice(_SIZES, (_FRESH, 1, 1))
            batch = in_float32(sizes * rng.standard_normal((_FRESH, length, ledger.width)))
            off = np.abs(ledger.ask(batch) - model(batch)).max(axis=1)
            worst = max(worst, float(off.max()))
            by_kind[kind] = float((off / model.sensitivity(batch)).max())
            relative = max(relative, by_kind[kind])
    passed = relative <= allowed
    n_queries = _FRESH * len(lengths)
    return Certificate(
        passed=passed,
        max_error=worst,
        max_relative_error=relative,
        allowed=allowed,
        n_queries=n_queries,
        confidence=_CONFIDENCE,
        fraction=1.0 - (1.0 - _CONFIDENCE) ** (1.0 / n_queries),
        lengths=lengths,
        sizes=_SIZES,
        by_kind=by_kind,
        failed=None if passed else max(by_kind, key=lambda kind: by_kind[kind]),
        distribution="Gaussian rows",
    )


def _own_rounding(
    ledger: Ledger, model: LanguageModel, lengths: tuple[int, ...], rng: np.random.Generator
) -> float:
    """The largest rounding seen in the target's own answers, relative as the errors above: along a short line
    of prompts answers are a cubic, and what is left of them is rounding. The recovered model is not asked
    what it is."""
    along = np.linspace(0.0, _LINE, _LINE_POINTS)
    basis = np.linalg.qr(np.vander(along / _LINE, 4))[0]
    largest = 0.0
    for length, size in product(lengths, _SIZES):
        start, direction = size * rng.standard_normal((2, length, ledger.width))
        batch = start + along[:, None, None] * direction
        answers = ledger.ask(batch)
        left = answers - basis @ (basis.T @ answers)
        largest = max(largest, float((np.abs(left).max(axis=1) / model.sensitivity(batch)).max()))
    return largest


def _judge(found: LanguageModelFindings, certificate: Certificate) -> tuple[Status, str]:
    assert found.model is not None
    bound = np.inf if found.error_bound is None else found.error_bound
    if certificate.passed and bound <= found.model.exact_at:
        return Status.EXACT, certificate.statement
    if certificate.passed:
        return Status.WITHIN_BOUND, f"the parameters are known to {bound:.1g}; {certificate.statement}"
    return Status.UNRESOLVED, f"all parts fit their own prompts, but {certificate.statement}"
