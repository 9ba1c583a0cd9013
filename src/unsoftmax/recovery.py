"""`recover`: learn, certify, bound the error, and say how it ended."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.certify import Certificate, certify, error_bound
from unsoftmax.errors import UsageError
from unsoftmax.learners import Learned, Learner, learner_for
from unsoftmax.ledger import Ledger, Progress
from unsoftmax.outcomes import OutsideClass, Status, Stop, Unresolved
from unsoftmax.result import Result
from unsoftmax.targets import as_oracle

__all__ = ["recover"]

_STREAM = 0x5F0F7  # keeps our randomness apart from that of targets made from the same small seed
_USEFUL = 0.1  # relative error from which a recovery is none


def recover(
    target: object,
    *,
    width: int | None = None,
    family: str = "auto",
    budget: int | None = None,
    seed: int = 0,
    input_bound: float | None = None,
    outputs: int | None = None,
    learner: Learner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Recovers the parameters of `target` from its answers alone, with a certificate and the bill.

    target: a callable (B, N, d) -> (B,), an oracle, a model, 'demo:...', a .safetensors file, or 'package.module:callable'.
    width: d, where the target does not tell. budget: largest number of queries. seed: all randomness.
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
    chosen = learner if learner is not None else learner_for(family)
    ledger = Ledger(as_oracle(target, outputs=outputs), width=width, budget=budget, input_bound=input_bound, listener=progress)
    if ledger.outputs is not None:
        raise UsageError(f"the target answers with {ledger.outputs} numbers a query; pass a function that returns one of them, or a weighted sum")
    learning, checking = (np.random.default_rng([_STREAM, int(seed), part]) for part in (1, 2))
    learned: Learned | None = None
    certificate: Certificate | None = None
    bound: float | None = None
    try:
        learned = chosen.learn(ledger, learning)
        certificate = certify(ledger, learned.model, checking, tolerance=learned.tolerance, caveat=learned.caveat)
        bound = learned.error_bound if learned.error_bound is not None else error_bound(ledger, learned.model, checking)
        bound = None if bound is None else max(bound, learned.bound_at_least)
        status, reason = _judge(certificate, bound, learned.model.exact_at)
        reason = f"{learned.note}; {reason}" if learned.note else reason
    except Stop as stop:
        status, reason = stop.status, stop.reason
    return Result(
        status=status,
        reason=reason,
        queries=ledger.bill,
        family=chosen.family if learned is None else learned.model.family,
        width=ledger.width,
        claim=chosen.claim,
        model=learned.model if learned is not None and status.recovered else None,
        certificate=certificate,
        error_bound=bound,
    )


def _judge(certificate: Certificate, bound: float | None, exact: float) -> tuple[Status, str]:
    """The status that certificate and bound allow. A deviation that the bound cannot explain means another function."""
    if certificate.passed and bound is not None and bound <= exact:
        return Status.EXACT, certificate.statement
    if bound is None or not bound <= _USEFUL:
        if certificate.failed is not None and certificate.max_relative_error > 1e-3:
            raise OutsideClass(certificate.failed, certificate.statement)
        raise Unresolved(f"the parameters are only known to a relative error of {bound or np.inf:.1g}; larger inputs or exact answers would help")
    if certificate.max_relative_error <= 10.0 * bound:
        return Status.WITHIN_BOUND, f"the parameters are known to a relative error of {bound:.1g}; {certificate.statement}"
    assert certificate.failed is not None
    raise OutsideClass(certificate.failed, certificate.statement)
