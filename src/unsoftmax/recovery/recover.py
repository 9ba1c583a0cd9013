"""`recover`: learn, certify, bound the error, and say how it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from unsoftmax.certify import REPLAY_TEST, Certificate, certify, confirm_target, error_bound, rounding_limit
from unsoftmax.errors import UsageError
from unsoftmax.learners import AnswerAwareLearner, Learned, Learner, VectorOutputsLearner, learner_for
from unsoftmax.ledger import Ledger, Progress, open_journal
from unsoftmax.oracles import identity, pins_content
from unsoftmax.outcomes import OutsideClass, Status, Stop, Unresolved
from unsoftmax.recovery.result import Result
from unsoftmax.recovery.targets import as_oracle

__all__ = ["checked_tolerance", "recover"]

_STREAM = 0x5F0F7  # keeps our randomness apart from that of targets made from the same small seed
_SLACK = 100.0  # how far beyond the usual rounding a float64 computation may go
_PARTS = 2.0  # errors of W and of v, each within the bound, add up
_USEFUL = 0.1  # relative error from which a recovery is none


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
    learner: Learner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Recovers the parameters of `target` from its answers alone, with a certificate and the bill.

    target: a callable (B, N, d) -> (B,), an oracle, a model, 'demo:...', a .safetensors file, or
    'package.module:callable'.
    width: d, where the target does not tell. budget: largest number of queries, earlier runs on the same
    ledger included. seed: all randomness.
    ledger: a file that keeps every answer; a run that was stopped goes on from it without asking anything
    again.
    tolerance: how far an answer may be off (None: what kind of answers they are is found out, see
    `Result.findings`).
    input_bound: largest norm of a row that may be sent. learner: a particular theorem instead of the default.
    progress: called after every batch with a `Progress`.

    >>> import numpy as np, unsoftmax
    >>> hidden = unsoftmax.random_single_head(6, seed=1)
    >>> result = unsoftmax.recover(lambda X: hidden(X), width=6)
    >>> str(result.status), hidden.distance(result.model) < 1e-12
    ('EXACT', True)
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"seed must be a whole number >= 0, not {seed!r}")
    chosen = (
        learner
        if learner is not None
        else AnswerAwareLearner(learner_for(family), checked_tolerance(tolerance))
    )
    oracle = as_oracle(target, outputs=outputs)
    if learner is None and oracle.spec.outputs is not None:
        chosen = VectorOutputsLearner()
    with ExitStack() as stack:
        if isinstance(target, str | Path) and callable(close := getattr(oracle, "close", None)):
            stack.callback(close)
        journal = None
        if ledger is not None:
            Ledger(
                oracle, width=width, budget=budget, input_bound=input_bound
            )  # refuses wrong usage before a file is begun for it
            options = {
                "width": width or oracle.spec.width,
                "tolerance": tolerance,
                "outputs": outputs or oracle.spec.outputs,
                "input_bound": input_bound,
            }
            journal = stack.enter_context(
                open_journal(ledger, oracle, seed=int(seed), learner=chosen, options=options)
            )
        books = Ledger(
            oracle, width=width, budget=budget, input_bound=input_bound, journal=journal, listener=progress
        )
        return _recover(books, chosen, int(seed))


def _recover(ledger: Ledger, chosen: Learner, seed: int, attempt: int = 0) -> Result:
    """The recovery itself, on an open ledger."""
    learning, checking = (np.random.default_rng([_STREAM, seed, part + 10 * attempt]) for part in (1, 2))
    learned: Learned | None = None
    certificate: Certificate | None = None
    bound: float | None = None
    try:
        with np.errstate(
            over="ignore", divide="ignore", invalid="ignore"
        ):  # boxes that are none of ours lead anywhere; the certificate decides
            learned = chosen.learn(ledger, learning)
        own = learned.error_bound
        allowed = learned.model.exact_at if own is None else max(learned.model.exact_at, 2.0 * own)
        certificate = certify(
            ledger,
            learned.model,
            checking,
            allowed=allowed,
            tolerance=learned.tolerance,
            caveat=learned.caveat,
            deviation=learned.deviation,
            repeats=learned.repeats,
        )
        bound = own if own is not None else error_bound(ledger, learned.model, checking)
        bound = None if bound is None else max(bound, learned.bound_at_least)
        explained = (
            np.inf
            if own is not None or not learned.exact_answers
            else _SLACK * rounding_limit(learned.model, ledger.input_bound)
        )
        explained = max(explained, learned.bound_at_least)
        status, reason = _judge(
            certificate, bound, explained, learned.model.exact_at if learned.exact_answers else 0.0
        )
        if ledger.only_replayed and not pins_content(identity(ledger.oracle)):
            confirming = np.random.default_rng([_STREAM, seed, 3])
            confirm_target(
                ledger,
                learned.model,
                certificate,
                confirming,
                tolerance=learned.tolerance,
                deviation=learned.deviation,
                repeats=learned.repeats,
            )
        reason = f"{learned.note}; {reason}" if learned.note else reason
    except Stop as stop:
        status, reason = stop.status, stop.reason
        try:
            other = (
                chosen.reconsider(ledger, learning)
                if isinstance(chosen, AnswerAwareLearner) and _open_to_doubt(stop)
                else None
            )
        except Stop as spent:
            other, status, reason = None, spent.status, spent.reason
        if other is not None:
            return _recover(ledger, other, seed, attempt + 1)
    return Result(
        status=status,
        reason=reason,
        queries=ledger.bill,
        family=chosen.family if learned is None else learned.model.family,
        width=ledger.width,
        claim=ledger.known.get("claim", chosen.claim),
        model=learned.model if learned is not None and status.recovered else None,
        certificate=certificate,
        error_bound=bound,
        constant_bound=None if learned is None else learned.constant_bound,
        findings=tuple(ledger.known.get("findings", ())),
    )


def _open_to_doubt(stop: Stop) -> bool:
    """Whether answers that are not exact after all could explain this outcome."""
    return isinstance(stop, Unresolved) or (isinstance(stop, OutsideClass) and stop.test != REPLAY_TEST)


def checked_tolerance(tolerance: float | None) -> float | None:
    """How far an answer may be off, or a `UsageError`."""
    if tolerance is None:
        return None
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, int | float | np.number)
        or not (np.isfinite(tolerance) and tolerance >= 0)
    ):
        raise UsageError(f"tolerance must be a finite number >= 0, not {tolerance!r}")
    return float(tolerance)


def _judge(
    certificate: Certificate, bound: float | None, explained: float, exact: float
) -> tuple[Status, str]:
    """The status that the evidence allows. `explained`: the error of parameters that the answers' own errors
    account for.

    A bound or a deviation beyond that means another function than the one learnt, however small it is.
    """
    if certificate.passed and bound is not None and bound <= exact:
        return Status.EXACT, certificate.statement
    known = np.inf if bound is None else bound
    if known <= min(explained, _USEFUL) and certificate.max_relative_error <= max(
        certificate.allowed, _PARTS * known
    ):
        return (
            Status.WITHIN_BOUND,
            f"the parameters are known to a relative error of {known:.1g}; {certificate.statement}",
        )
    if certificate.failed is not None and certificate.max_relative_error > max(
        exact, 10.0 * min(explained, known)
    ):
        raise OutsideClass(certificate.failed, certificate.statement)
    raise Unresolved(
        f"the parameters are only known to a relative error of {known:.1g}, where rounding explains "
        f"{explained:.1g}; {certificate.statement}; "
        "exact answers, larger inputs (input_bound) or another seed would help"
    )
